"""Rows about texts that make a careless parser slow: each is read at one size and at twice that size.

The column `smaller` is the time at the smaller size, so its ratio is about 2 where time is linear and 4 where it is
quadratic.  By deltas the texts are shorter, since a delta costs a microsecond however short it is.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from chatcodec import Format

from .fixtures import Pieces, call_of, code, completion, deltas, pieces
from .parsing import stream
from .table import OURS, Row
from .timing import Lap, lap

GOALS = {"smaller": 2.6}  #: twice the time, and some noise

TextOf = Callable[[Format, Pieces, int], str]

#: The texts: the larger size in batch and by deltas, and how to make one.
TEXTS: dict[str, tuple[int, int, TextOf]] = {
    "a value of {:,} characters": (10_000_000, 1_000_000, lambda fmt, _, size: completion(fmt, call_of({"a": code(size)}))),
    "{:,} openers, no closer": (100_000, 20_000, lambda _, part, size: part.start + part.opener * size),
    "{:,} openers in reasoning": (100_000, 20_000, lambda _, part, size: part.opener * size),
    "{:,} openers in values": (100_000, 20_000, lambda _, part, size: part.start + (part.head + "x") * size),
    "{:,} blanks in content": (1_000_000, 250_000, lambda _, part, size: f"{part.start}x{_blanks(size)}y{part.stop}"),
    "{:,} blanks in a value": (1_000_000, 250_000, lambda fmt, _, size: completion(fmt, call_of({"a": f"x{_blanks(size)}y"}))),
    "{:,} blanks behind a value's closer": (
        1_000_000,
        250_000,
        lambda _, part, size: f"{part.start}{part.head}x{part.closer}{_blanks(size)}{part.ending.removeprefix(part.closer)}",
    ),
    "{:,} closers that do not count": (
        100_000,
        20_000,
        lambda _, part, size: part.start + part.head + f"{part.closer} x" * size + part.ending,
    ),
    "{:,} arguments": (50_000, 5_000, lambda fmt, _, size: completion(fmt, call_of({f"a{number}": "x" for number in range(size)}))),
}


def rows(fmt: Format, quick: bool) -> Iterator[Row]:
    """All rows of a format."""
    for name, (batch, streamed, text_of) in TEXTS.items():
        for size, suffix, laps in ((batch, "", _batch), (streamed, ", by deltas", _streams)):
            size = size // 10 if quick else size
            yield Row(fmt.name, name.format(size) + suffix, "ms", partial(laps, fmt, text_of, size), GOALS)


def _batch(fmt: Format, text_of: TextOf, size: int) -> Mapping[str, Lap]:
    part = pieces(fmt)
    laps = {}
    for name, characters in ((OURS, size), ("smaller", size // 2)):
        laps[name] = lap(partial(fmt.parse, text_of(fmt, part, characters)))
    return laps


def _streams(fmt: Format, text_of: TextOf, size: int) -> Mapping[str, Lap]:
    part = pieces(fmt)
    laps = {}
    for name, characters in ((OURS, size), ("smaller", size // 2)):
        laps[name] = lap(partial(stream, fmt, deltas(text_of(fmt, part, characters)), None))
    return laps


def _blanks(size: int) -> str:
    return " \n" * (size // 2)
