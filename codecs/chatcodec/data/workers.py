"""Worker processes: files in, chunks of work out, in order, and never many of them under way.

Rules of this module:

* results come in the order of the chunks; a fixed number of chunks is under way at a time, so that memory is bounded;
* workers do not mind SIGINT: the engine stops them; and they end when the engine's process is gone, however it went.
"""

import gc
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from multiprocessing import get_all_start_methods, get_context, parent_process
from multiprocessing.context import BaseContext
from pathlib import Path
from threading import Thread, active_count
from time import sleep
from typing import Any, NamedTuple, TypeVar

if sys.platform == "linux":
    import fcntl

from ..errors import CodecError
from .chunks import Done, Work, convert_chunk
from .files import chunks_of

AHEAD = 3  #: chunks under way for each worker
PIPE_BYTES = 1 << 20  #: the most that Linux gives to everybody


class Input(NamedTuple):
    """A file to convert: the shard that takes its rows, its number among the shard's files, and the chunks to pass over."""

    shard: int
    number: int
    file: str
    skip: int
    work: Work


class Result(NamedTuple):
    """A converted chunk: of which input, and how far into the file, in bytes, it ends."""

    input: Input
    end: int
    done: Done


Run = Callable[[Sequence[Input]], Iterator[Result]]
#: What gives the function that converts, as a context that ends with the conversion.
Workers = Callable[[], AbstractContextManager[Run]]


@contextmanager
def local_workers(jobs: int) -> Iterator[Run]:
    """Convert in this process, or for more than one job in others."""
    if jobs == 1:
        yield convert_here
        return
    with processes(jobs) as pool:
        yield lambda inputs: _convert_there(pool, jobs, inputs)


def convert_here(inputs: Sequence[Input], *, folder: str = "") -> Iterator[Result]:
    """Convert in this process; `folder` is where names of files start."""
    for each in inputs:
        for chunk in islice(chunks_of(str(Path(folder, each.file)) if folder else each.file), each.skip, None):
            yield Result(each, chunk.end, convert_chunk(chunk._replace(file=each.file), each.work))


def _convert_there(pool: Executor, jobs: int, inputs: Sequence[Input]) -> Iterator[Result]:
    chunks = ((each, chunk) for each in inputs for chunk in islice(chunks_of(each.file), each.skip, None))
    tasks = (((each, chunk.end), (chunk, each.work)) for each, chunk in chunks)
    for (each, end), done in in_order(pool, jobs, convert_chunk, tasks):
        yield Result(each, end, done)


# -------------------------------------------------------------------------------------------------------------- processes

Mark = TypeVar("Mark")
Made = TypeVar("Made")


def in_order(
    pool: Executor, jobs: int, work: Callable[..., Made], tasks: Iterable[tuple[Mark, tuple[Any, ...]]]
) -> Iterator[tuple[Mark, Made]]:
    """Do the work of each task, given its arguments, in processes; gives the marks of the tasks with what was made, in order."""
    pending: deque[tuple[Mark, Future[Made]]] = deque()
    with _obituary():
        for mark, given in tasks:
            pending.append((mark, pool.submit(work, *given)))
            if len(pending) >= jobs * AHEAD:
                mark, future = pending.popleft()
                yield mark, future.result()
        for mark, future in pending:
            yield mark, future.result()


@contextmanager
def processes(jobs: int, *, start: Callable[[], object] = object) -> Iterator[Executor]:
    """Processes to work in, each of which begins with `start`."""
    pool = ProcessPoolExecutor(jobs, mp_context=_context(), initializer=_settle, initargs=(start,))
    _widen(pool)
    try:
        with _obituary():
            pool.submit(os.getpid).result()  # the processes start now, before any thread of others does
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _obituary() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool:
        raise CodecError(
            "a worker process ended without a word: perhaps the memory was too small (try fewer jobs), or the script that "
            'started the conversion has no `if __name__ == "__main__":` around it'
        ) from None


def _context() -> BaseContext:
    """How to start processes: quickly, by a fork, only where no thread could be caught in the middle of something."""
    if sys.platform == "linux" and active_count() == 1 and _alone():
        return get_context("fork")
    return get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")


def _alone() -> bool:
    """Whether the process has no other thread, not even one that Python does not know; one that just ended may be seen for a moment."""
    for _ in range(10):
        if len(list(Path("/proc/self/task").iterdir())) == 1:
            return True
        sleep(0.001)
    return False


def _widen(pool: ProcessPoolExecutor) -> None:
    """Pipes that hold whole chunks, where the system has such: nobody waits for the other side to read.  Without, all works alike."""
    if sys.platform == "linux":
        for queue in ("_call_queue", "_result_queue"):
            with suppress(AttributeError, OSError):
                fcntl.fcntl(getattr(pool, queue)._writer.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _settle(start: Callable[[], object]) -> None:
    gc.freeze()  # what came with the process is neither looked through nor, after a fork, copied
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_follow, daemon=True).start()
    start()


def _follow() -> None:
    engine = parent_process()
    if engine is not None:
        engine.join()
        os._exit(1)
