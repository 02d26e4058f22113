"""Conversions of whole data sets: files in, converted files out, by as many processes as are wanted, resumable to the byte.

Rules of this module:

* what is asked for is checked before anything is written;
* rows come out in the order in which they came in, whatever the number of jobs, and the bytes do not depend on it;
* `OUT.partial` and `OUT.checkpoint` are what an interrupted conversion leaves; one that comes to its end leaves neither.
"""

import json
import os
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any, get_args

from ..convert import Plan
from ..errors import CodecError, nearest
from .checkpoint import State, load, writing
from .chunks import OnLoss
from .engine import Job, LossError, Progress, Shard, guarded, partial_of, run_job
from .files import CHUNK_BYTES, CHUNK_ROWS, PIPE, find_files, reading, shown, size_of
from .tables_out import Kind, is_table, kind_of
from .tally import Tally
from .workers import Workers, local_workers

__all__ = ["CHECKPOINT_SECONDS", "LossError", "OnLoss", "Progress", "convert"]

CHECKPOINT_SECONDS = 2.0


def convert(
    source: str,
    target: str,
    plan: Plan,
    *,
    jobs: int = 1,
    on_loss: OnLoss = "keep",
    rejects: str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    workers: Workers | None = None,
) -> Tally:
    """Convert the rows of a file, a directory or a pipe (`-`) by a plan; gives the counts.

    `target` is a file whose name says what it is, a directory (one that is there and empty, or a name that ends with `/`),
    which gets a file for each input file, or `-` for JSON Lines on standard output.  `jobs` is the number of processes.
    Rows that cannot be converted are left out and counted, and with `rejects` written to that file (JSON Lines: file, row
    number, code, path, reason and the row as `data`).  `on_loss` says what becomes of a row that loses something: `keep`
    writes it, `reject` treats it like one that cannot be converted, `fail` raises LossError and leaves nothing.
    `resume` goes on from the checkpoint of an interrupted run, if there is one.  `progress` is called after each chunk.
    `workers` do the work elsewhere than in processes of this machine, as those of `integrations.ray` do.

    Raises CodecError for input that cannot be read and output that cannot be written, KeyboardInterrupt at an interrupt,
    and BrokenPipeError if nobody reads standard output any more.
    """
    _check(source, target, rejects, jobs, on_loss)
    files = find_files(source)
    folder, shards = _shards(source, target, files)
    checkpoint = None if target == PIPE else Path(f"{target.rstrip('/')}.checkpoint")
    about = _about(source, target, plan, on_loss, rejects, files)
    state = State()
    if resume:
        if checkpoint is None:
            raise CodecError("a conversion to standard output cannot be resumed")
        state = load(checkpoint, about) or state
    elif checkpoint:
        with writing(checkpoint):
            checkpoint.unlink(missing_ok=True)
        if folder:  # the shards of a run before, or those of other files might come among these
            rmtree(partial_of(folder), ignore_errors=True)
    kept = None if rejects is None else Path(rejects)
    job = Job(
        plan, on_loss, shards, folder, kept, _rejects_kind(rejects), checkpoint, about, checkpoint_seconds, state, progress
    )  # fmt: skip
    with ExitStack() as stack:
        whole = stack.enter_context(guarded())
        run_job(job, stack.enter_context((workers or partial(local_workers, jobs))()), whole)
    return state.tally


def _check(source: str, target: str, rejects: str | None, jobs: int, on_loss: str) -> None:
    if on_loss not in get_args(OnLoss):
        raise CodecError(f"unknown on_loss {on_loss!r}{nearest(str(on_loss), get_args(OnLoss))}; there are keep, reject and fail")
    if jobs < 1:
        raise CodecError(f"jobs must be 1 or more, not {jobs}")
    paths = [os.path.realpath(path) for path in (source, target, rejects) if path is not None and path != PIPE]
    if len(set(paths)) < len(paths):
        raise CodecError("input, output and rejects must be different files")
    for path in (target, rejects):
        if path is not None and path != PIPE and not Path(path).absolute().parent.is_dir():
            raise CodecError(f"{shown(path)}: there is no directory {shown(Path(path).parent)}")


def _rejects_kind(rejects: str | None) -> Kind | None:
    if rejects is None:
        return None
    kind = kind_of(rejects)
    if rejects == PIPE or is_table(kind):
        raise CodecError(f"{shown(rejects)}: rejects go to a file of JSON Lines, packed or not")
    return kind


def _shards(source: str, target: str, files: list[str]) -> tuple[Path | None, list[Shard]]:
    """The files to write, and the directory that they make up, if they do."""
    sizes = [size_of(file) for file in files]
    if target == PIPE:
        return None, [Shard(Path(target), "lines", files, sizes)]
    path = Path(target)
    if not target.endswith("/") and not path.is_dir():
        return None, [Shard(path, kind_of(target), files, sizes)]
    if source == PIPE:
        raise CodecError(f"{shown(target)}: rows of standard input go to one file, not to a directory")
    with writing(path):
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise CodecError(f"{shown(target)}: this is there already, and no empty directory")
    whole = Path(source).is_dir()
    names = [os.path.relpath(file, source) if whole else Path(file).name for file in files]
    return path, [
        Shard(partial_of(path) / name, kind_of(name), [file], [size]) for name, file, size in zip(names, files, sizes, strict=True)
    ]


def _about(source: str, target: str, plan: Plan, on_loss: str, rejects: str | None, files: list[str]) -> dict[str, Any]:
    """What makes a conversion this one and no other: what a checkpoint must agree with."""
    stamps: list[list[Any]] = []
    for file in files:
        with reading(file):
            status = None if file == PIPE else Path(file).stat()
            stamps.append([file] if status is None else [file, status.st_size, status.st_mtime_ns])
    about = {
        "from": plan.source, "to": plan.target, "columns": asdict(plan.columns), "options": dict(plan.options), "on_loss": on_loss,
        "input": source, "output": target, "rejects": rejects, "files": stamps, "chunk": [CHUNK_BYTES, CHUNK_ROWS],
    }  # fmt: skip
    plain: dict[str, Any] = json.loads(json.dumps(about, default=str))
    return plain
