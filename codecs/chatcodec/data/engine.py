"""The loop of a conversion: takes converted chunks, writes and counts them, and keeps a checkpoint.

Rules of this module:

* nothing stands under a final name before all of it is safely on the disk: files are written as `NAME.partial` and renamed;
* a chunk is written, then counted; an interrupt never falls between the two;
* a checkpoint is saved every few seconds, before a file is finished, and when anything ends the conversion early.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from shutil import rmtree
from threading import current_thread, main_thread
from time import monotonic
from typing import Any, NamedTuple

from ..convert import Plan
from ..errors import CodecError
from .checkpoint import State, begin_saving, open_at, publish, save, write_all, writing
from .chunks import OnLoss, Work
from .files import PIPE
from .tables_out import Kind, assemble, empty, is_table, merge_kinds
from .tally import Place, Tally, add
from .workers import Input, Result, Run

STRETCH = 4 << 20  #: bytes of output after which the disk is set to work

Progress = Callable[[int, int, int | None], object]
"""Is told the rows and the bytes read so far, and the bytes there are, or None where nobody knows."""
Whole = Callable[[], AbstractContextManager[None]]


class LossError(CodecError):
    """A row would lose something, and `on_loss="fail"` does not have it.

    `code` and `place` say what and where, `tally` what was counted up to there.
    """

    def __init__(self, code: str, place: Place, tally: Tally) -> None:
        self.code, self.place, self.tally = code, place, tally
        super().__init__(f"{place.file}: row {place.row} would lose something: {code} at {place.path}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code, self.place, self.tally)


class Shard(NamedTuple):
    """One file to write, what it is, and the files whose rows it takes, with their sizes."""

    final: Path
    kind: Kind
    files: list[str]
    sizes: list[int | None]

    @property
    def is_pipe(self) -> bool:
        """Whether it is standard output."""
        return str(self.final) == PIPE


@dataclass
class Job:
    """A conversion under way."""

    plan: Plan
    on_loss: OnLoss
    shards: list[Shard]
    folder: Path | None  #: the directory that the shards make up, if they do
    rejects: Path | None
    rejects_kind: Kind | None
    checkpoint: Path | None
    about: dict[str, Any]
    seconds: float  #: between checkpoints
    state: State
    progress: Progress | None
    out: int | None = None  #: the open shard
    reject_out: int | None = None
    saved: float = 0.0


def partial_of(path: Path) -> Path:
    """Where a file stands while it is written."""
    return path.with_name(path.name + ".partial")


def run_job(job: Job, run: Run, whole: Whole) -> None:
    """Do what is left of a conversion.  Raises as `pipeline.convert` does."""
    state = job.state
    job.saved = monotonic()
    starts = [0, *accumulate(size or 0 for shard in job.shards for size in shard.sizes)]  # one shard, or one file a shard
    try:
        _open_rejects(job)
        for result in run(_inputs(job)):
            _finish_shards(job, result.input.shard)
            _open_shard(job)
            with whole():
                _commit(job, result)
            _report(job, starts, result)
            if monotonic() - job.saved >= job.seconds:
                _save(job)
        _finish_shards(job, len(job.shards))
        _finish(job)
    except LossError:
        _close(job)
        _discard(job)
        raise
    except BaseException as error:
        with whole():
            kept = _keep(job)
        if kept and isinstance(error, CodecError):
            raise CodecError(f"{error}\n{state.tally.read} rows are done, and resuming goes on from there") from None
        raise
    finally:
        _close(job)


def _inputs(job: Job) -> list[Input]:
    """The files that are still to read."""
    state = job.state
    return [
        Input(index, number, file, state.chunks if (index, number) == (state.shard, state.file) else 0, _work(job, shard))
        for index, shard in enumerate(job.shards)
        for number, file in enumerate(shard.files)
        if (index, number) >= (state.shard, state.file)
    ]


def _work(job: Job, shard: Shard) -> Work:
    return Work(job.plan, job.on_loss, shard.kind, job.rejects_kind)


def _commit(job: Job, result: Result) -> None:
    """Write a chunk, then count it."""
    state, done, shard = job.state, result.done, job.shards[job.state.shard]
    if done.failure:
        add(state.tally, done.tally)
        raise LossError(*done.failure, state.tally)
    if shard.is_pipe:
        _write_pipe(done.out)
    elif job.out is not None:
        with writing(shard.final):
            write_all(job.out, done.out)
            if (state.staged + len(done.out)) // STRETCH > state.staged // STRETCH:
                begin_saving(job.out)
    if job.rejects and job.reject_out is not None:
        with writing(job.rejects):
            write_all(job.reject_out, done.rejects)
    state.staged += len(done.out)
    state.rejected += len(done.rejects)
    state.chunks = state.chunks + 1 if result.input.number == state.file else 1
    state.file = result.input.number
    merge_kinds(state.kinds, done.kinds)
    add(state.tally, done.tally)


def _report(job: Job, starts: list[int], result: Result) -> None:
    """Tell the progress; `starts` are where the files begin, had they been put one behind the other."""
    if job.progress:
        total = None if job.shards[0].sizes == [None] else starts[-1]
        job.progress(job.state.tally.read, starts[result.input.shard + result.input.number] + result.end, total)


def _write_pipe(data: bytes) -> None:
    rest = memoryview(data)
    try:
        while rest:  # without a buffer (`python -u`) a pipe may take only a part
            rest = rest[sys.stdout.buffer.write(rest) :]
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CodecError(f"standard output: {error.strerror or error}") from None


# ------------------------------------------------------------------------------------------------------------------ files


def _published(job: Job, staged: Path, final: Path) -> bool:
    """Whether a run that was stopped in its last moment had already given the file its name."""
    state = job.state
    at_end = state.shard == len(job.shards) or state.file == len(job.shards[state.shard].files)
    return at_end and not staged.exists() and final.exists()


def _open_rejects(job: Job) -> None:
    if job.rejects:
        staged = partial_of(job.rejects)
        with writing(staged):
            if not _published(job, staged, job.rejects):
                job.reject_out = open_at(staged, job.state.rejected)


def _open_shard(job: Job) -> None:
    """Open the shard that is to be written now, if it is not open yet."""
    shard = job.shards[job.state.shard]
    staged = partial_of(shard.final)
    if job.out is None and not shard.is_pipe and not _published(job, staged, shard.final):
        with writing(staged):
            shard.final.parent.mkdir(parents=True, exist_ok=True)
            job.out = open_at(staged, job.state.staged)


def _finish_shards(job: Job, end: int) -> None:
    """Finish all shards before number `end`, those to which no row came among them."""
    while job.state.shard < end:
        _open_shard(job)
        _finish_shard(job)


def _finish_shard(job: Job) -> None:
    """Give the shard its name, once all of it is on the disk, and turn to the next."""
    state, shard = job.state, job.shards[job.state.shard]
    state.file, state.chunks = len(shard.files), 0
    if job.out is not None:
        if not state.staged:
            with writing(shard.final):
                write_all(job.out, empty(shard.kind))
        _save(job)
        os.close(job.out)
        job.out = None
        with writing(shard.final):
            staged = partial_of(shard.final)
            if is_table(shard.kind):
                _assemble(job, staged, shard)
            else:
                publish(staged, shard.final)
    state.shard, state.file, state.chunks, state.staged, state.kinds = state.shard + 1, 0, 0, 0, {}


def _assemble(job: Job, staged: Path, shard: Shard) -> None:
    assembled = shard.final.with_name(shard.final.name + ".assembled")
    try:
        assemble(staged, job.state.kinds, str(assembled), shard.kind)
        with assembled.open("rb") as whole:
            os.fsync(whole.fileno())
        publish(assembled, shard.final)
    finally:
        assembled.unlink(missing_ok=True)
    staged.unlink()


def _finish(job: Job) -> None:
    """The last names, and away with the checkpoint."""
    if job.checkpoint:
        _save(job)
    _close(job)
    if job.rejects and partial_of(job.rejects).exists():
        with writing(job.rejects):
            publish(partial_of(job.rejects), job.rejects)
    if job.folder and partial_of(job.folder).exists():
        with writing(job.folder):
            publish(partial_of(job.folder), job.folder)
    if job.checkpoint:
        with writing(job.checkpoint):
            job.checkpoint.unlink(missing_ok=True)


def _save(job: Job) -> None:
    """Save a checkpoint of what is on the disk by then."""
    if job.checkpoint:
        with writing(job.shards[min(job.state.shard, len(job.shards) - 1)].final):
            for handle in (job.out, job.reject_out):
                if handle is not None:
                    os.fsync(handle)
            save(job.checkpoint, job.state, job.about)
    job.saved = monotonic()


def _keep(job: Job) -> bool:
    """Save what is done before an early end, if it is worth it; whether there is something to resume."""
    if not job.checkpoint:
        return False
    if not job.state.tally.read and not job.checkpoint.exists():
        _close(job)
        _discard(job)
        return False
    with suppress(CodecError):  # on a full disk the checkpoint before this one stays
        _save(job)
    return job.checkpoint.exists()


def _close(job: Job) -> None:
    for handle in (job.out, job.reject_out):
        if handle is not None:
            os.close(handle)
    job.out = job.reject_out = None


def _discard(job: Job) -> None:
    """Remove all that was written."""
    with suppress(OSError):
        if job.folder:
            rmtree(partial_of(job.folder), ignore_errors=True)
        for path in [shard.final for shard in job.shards if not shard.is_pipe] + [job.rejects or job.shards[0].final]:
            partial_of(path).unlink(missing_ok=True)
        if job.checkpoint:
            job.checkpoint.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------------------------- interrupts


@contextmanager
def guarded() -> Iterator[Whole]:
    """Gives what holds an interrupt back while something is done that must be done whole."""
    held = waiting = False

    def interrupt(*_: object) -> None:
        nonlocal waiting
        if not held:
            raise KeyboardInterrupt
        waiting = True

    @contextmanager
    def whole() -> Iterator[None]:
        nonlocal held, waiting
        held = True
        try:
            yield
        finally:
            held = False
        if waiting:
            waiting = False
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or before is not signal.default_int_handler:
        yield whole  # someone else sees to interrupts
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield whole
    finally:
        signal.signal(signal.SIGINT, before)
