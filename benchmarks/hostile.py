"""Rows about texts that make a careless parser slow: each is read at one size and at twice that size.

The column `smaller` is the time at the smaller size, so its ratio is about 2 where time is linear and 4 where it is
quadratic.  By deltas the texts are shorter, since a delta costs a microsecond however short it is.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial

from chatcodec import Format
from chatcodec.typescript import DeclarationError, read_declarations

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
    "{:,} arguments, two of one name": (50_000, 5_000, lambda fmt, _, size: twice(fmt, size)),
}


def twice(fmt: Format, size: int) -> str:
    """A call with so many arguments, of which the last has the name of the one before."""
    text = completion(fmt, call_of({f"zq{number:08}": "x" for number in range(size)}))
    return text.replace(f"zq{size - 1:08}", f"zq{size - 2:08}")


_OPEN, _CLOSE = "type f = (_: {\n", "x: string,\n}) => any;"
#: Declarations of tools, by how often what is hard in them stands there.
DECLARATIONS: dict[str, Callable[[int], str]] = {
    "quotes in a line": lambda size: f"{_OPEN}// d\n" + ': "\\' * size + f"\n{_CLOSE}",
    "quotes in lines": lambda size: f"{_OPEN}// d\n" + (': "\\' * 400 + "\n") * (size // 400) + _CLOSE,
    "brackets": lambda size: f"{_OPEN}p: \n     | string // " + "[] " * size + f"[],\n{_CLOSE}",
    "defaults in quotes": lambda size: _OPEN + "".join(f'p{number}: "a", // default: "x\n' for number in range(size // 8)) + _CLOSE,
    "titles": lambda size: _OPEN + "// x\n//\n" * size + _CLOSE,
    "examples": lambda size: _OPEN + "// Examples:\n" + '// - "x"\n' * size + _CLOSE,
    "comments": lambda size: _OPEN + "// x\n" * size,
    "tools": lambda size: "## x\n\n\n\n" * (size // 8) + "## x\n\n",
    "variants": lambda size: f"{_OPEN}p:\n" + " | string // a\n" * (size // 4) + f",\n{_CLOSE}",
    "words": lambda size: f"{_OPEN}p: " + "string | " * size + f"null,\n{_CLOSE}",
}
_DECLARATIONS = 100_000


def rows(fmt: Format, quick: bool) -> Iterator[Row]:
    """All rows of a format."""
    for name, (batch, streamed, text_of) in TEXTS.items():
        for size, suffix, laps in ((batch, "", _batch), (streamed, ", by deltas", _streams)):
            size = size // 10 if quick else size
            yield Row(fmt.name, name.format(size) + suffix, "ms", partial(laps, fmt, text_of, size), GOALS)
    if fmt.declared is not None:
        for name, declared in DECLARATIONS.items():
            size = _DECLARATIONS // 10 if quick else _DECLARATIONS
            yield Row(fmt.name, f"declared: {name}, {size:,}", "ms", partial(_declarations, declared, size), GOALS)


def _batch(fmt: Format, text_of: TextOf, size: int) -> Mapping[str, Lap]:
    part = pieces(fmt)
    laps = {}
    for name, characters in ((OURS, size), ("smaller", size // 2)):
        laps[name] = lap(partial(fmt.parse, text_of(fmt, part, characters)))
    return laps


def _declarations(declared: Callable[[int], str], size: int) -> Mapping[str, Lap]:
    return {name: lap(partial(_read, declared(number))) for name, number in ((OURS, size), ("smaller", size // 2))}


def _read(text: str) -> None:
    with suppress(DeclarationError):
        read_declarations(text)


def _streams(fmt: Format, text_of: TextOf, size: int) -> Mapping[str, Lap]:
    part = pieces(fmt)
    laps = {}
    for name, characters in ((OURS, size), ("smaller", size // 2)):
        laps[name] = lap(partial(stream, fmt, deltas(text_of(fmt, part, characters)), None))
    return laps


def _blanks(size: int) -> str:
    return " \n" * (size // 2)
