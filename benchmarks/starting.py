"""Rows about the first moments: the import, and the first use of a format, each in a fresh interpreter."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from chatcodec import Format

from .fixtures import SHORT, TOOLS, TURNS, completion
from .table import OURS, Row
from .timing import Lap

IMPORT_SECONDS, FIRST_USE_SECONDS = 0.3, 0.05
ROUNDS, QUICK_ROUNDS = 7, 2


def import_rows(quick: bool) -> Iterator[Row]:
    """What is the same for every format."""
    least = QUICK_ROUNDS if quick else ROUNDS
    yield Row("", "import chatcodec", "ms", partial(_timed, "", "import chatcodec"), {OURS: IMPORT_SECONDS}, least)


def rows(fmt: Format, quick: bool) -> Iterator[Row]:
    """The rows of a format."""
    messages = [{"role": "user", "content": "Hi."}, TURNS[SHORT]]
    uses = {
        "parse": lambda: f"parse({completion(fmt, TURNS[SHORT], TOOLS)!r}, tools={TOOLS!r})",
        "render": lambda: f"render({messages!r}, tools={TOOLS!r})",
        "parse_prompt": lambda: f"parse_prompt({fmt.render(messages, tools=TOOLS).text!r})",
    }
    for name, use in uses.items():
        prepare = partial(_first, fmt.name, use)
        yield Row(fmt.name, f"first {name}", "ms", prepare, {OURS: FIRST_USE_SECONDS}, QUICK_ROUNDS if quick else ROUNDS)


def _first(name: str, use: Callable[[], str]) -> Mapping[str, Lap]:
    return _timed("import chatcodec", f"chatcodec.get_format({name!r}).{use()}")


def _timed(before: str, measured: str) -> Mapping[str, Lap]:
    script = f"from time import perf_counter\nstart = perf_counter()\n{measured}\nprint(perf_counter() - start)"
    return fresh(before, script)


def fresh(before: str, script: str) -> Mapping[str, Lap]:
    """What a script prints in an interpreter of its own, as the measure."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def measured() -> float:
        command = [sys.executable, "-"]
        done = subprocess.run(command, input=f"{before}\n{script}", env=environment, capture_output=True, text=True, check=True)
        return float(done.stdout)

    return {OURS: measured}
