"""The conformance data: `vectors/NAME.jsonl` says what a format's template renders, `vectors/cases/NAME.jsonl` what its parser owes.

A vector has `messages`, `tools`, `kwargs`, the clock `now`, and in `expect` a text with generation spans or an error.  A case has
its `kind`, an `input`, what to `expect` and `why`.  Every registered format must have both.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import chatcodec

VECTORS = Path(__file__).parent / "vectors"
Case = dict[str, Any]


@cache
def _read(path: Path) -> tuple[Case, ...]:
    return tuple(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def vectors(name: str) -> tuple[Case, ...]:
    """The render vectors of a format."""
    return _read(VECTORS / f"{name}.jsonl")


def cases(name: str, *kinds: str) -> list[Case]:
    """The cases of a format that are of these kinds."""
    return [case for case in _read(VECTORS / "cases" / f"{name}.jsonl") if case["kind"] in kinds]


def all_cases(*kinds: str) -> list[Case]:
    """The cases of these kinds of all formats."""
    return [case for name in chatcodec.list_formats() for case in cases(name, *kinds)]


def options(vector: Case) -> dict[str, Any]:
    """The options that a vector is rendered with, its clock included where the format has one."""
    fmt = chatcodec.get_format(vector["format"])
    clock: dict[str, Any] = {"now": datetime.fromisoformat(vector["now"])} if "now" in fmt.options else {}
    return {**vector["kwargs"], **clock}


def text_of(case: Case) -> str:
    """The completion of a case: written out, or a unit to repeat."""
    given = case["input"]
    if "text" in given:
        return str(given["text"])
    parts = given["gen"]
    return str(parts["prefix"] + parts["unit"] * parts["count"] + parts["suffix"])


def cuts(case: Case) -> Iterator[list[str]]:
    """The ways to cut a case's text that it asks for, else every way to cut it in two."""
    given, text = case["input"], text_of(case)
    if "chunks" in given:
        yield list(given["chunks"])
    elif "gen" in given:
        size = given["gen"]["chunk_chars"] or 4
        yield [text[start : start + size] for start in range(0, len(text), size)]
    else:
        yield list(text)
        for middle in range(len(text) + 1):
            yield [text[:middle], text[middle:]]
