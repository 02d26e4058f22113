"""Rows about the conversion of a data set: the real corpus from `openai` to a format and back, files included.

Rules of this module:

* a lap is a whole conversion, from the file that is read to the file that is renamed, in a process of its own, which is warm: in
  the benchmark's process the threads of other libraries would keep it from starting workers quickly;
* one process alone is measured in its own seconds, as everything here; where two are compared with one (the column
  `smaller`) the seconds are those of the wall clock, since what is asked is how much sooner they are done;
* the way back starts from what the way there has written.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from chatcodec import Format
from chatcodec.convert import plan
from chatcodec.data.pipeline import convert

from .table import OURS, Row
from .timing import Lap

SECONDS = 3.0  #: that a direction may take with one process
GAIN = 1 / 1.7  #: of the time of one process, that two may take


def rows(fmt: Format, corpus: Path | None, quick: bool) -> Iterator[Row]:
    """The rows of a format; none without the corpus."""
    if corpus is None:
        return
    least = 1 if quick else 3
    for source, target in (("openai", fmt.name), (fmt.name, "openai")):
        name = f"convert the corpus {'to the format' if source == 'openai' else 'back'}"
        yield Row(fmt.name, f"{name}, 1 process", "ms", partial(_conversion, fmt, source, target, corpus, (1,)), {OURS: SECONDS}, least)
        both = partial(_conversion, fmt, source, target, corpus, (2, 1))
        yield Row(fmt.name, f"{name}, 2 processes", "ms", both, {"smaller": GAIN}, 1 if quick else 8)


def _conversion(fmt: Format, source: str, target: str, corpus: Path, jobs: tuple[int, ...]) -> Mapping[str, Lap]:
    """Laps for each number of jobs.  All must have written the same."""
    folder = TemporaryDirectory(prefix="chatcodec-")
    given = corpus
    if target == "openai":
        given = Path(folder.name, "text.jsonl")
        convert(str(corpus), str(given), plan("openai", fmt.name))
    outputs = [Path(folder.name, f"out{number}.jsonl") for number in jobs]
    clock = process_time if len(jobs) == 1 else perf_counter
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    timed = [partial(_seconds, str(given), str(out), source, target, each, clock) for out, each in zip(outputs, jobs, strict=True)]
    laps = [partial(_elsewhere, pool, folder, each) for each in timed]
    return _checked(dict(zip((OURS, "smaller"), laps, strict=False)), outputs)


def _seconds(given: str, out: str, source: str, target: str, jobs: int, clock: Callable[[], float]) -> float:
    start = clock()
    convert(given, out, plan(source, target), jobs=jobs)
    return clock() - start


def _elsewhere(pool: ProcessPoolExecutor, _: "TemporaryDirectory[str]", timed: Callable[[], float]) -> float:
    """Run a lap in the pool's process; the laps keep the pool and the folder alive."""
    return pool.submit(timed).result()


def _checked(laps: Mapping[str, Callable[[], float]], outputs: list[Path]) -> Mapping[str, Lap]:
    for lap in laps.values():
        lap()  # the first run pays for compiling grammars
    written = {output.read_bytes() for output in outputs}
    if len(written) > 1:
        raise AssertionError("the bytes depend on the number of processes")
    return laps
