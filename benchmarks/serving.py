"""Rows about serving: OpenAI chunks, token ids, many streams at once, and what an open stream keeps in memory."""

import tracemalloc
from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

from chatcodec import Format, get_format
from chatcodec.openai import ChunkStream

from . import engines
from .fixtures import MEDIUM, SHORT, TOOLS, TURNS, Message, argument_of, completion, content_of, deltas
from .starting import fresh
from .table import OURS, Row
from .timing import Lap, lap

#: Seconds that a delta, or an id, may take with all that a server makes of it; and bytes that a stream may keep beside its text.
DELTA_SECONDS, STREAM_BYTES = 4e-6, 3_000
FLAT_GOALS = {OURS: DELTA_SECONDS, "smaller": 1.25}
SMALLEST, SIZES, QUICK_SIZES = 1, (32, 1024), (16, 128)  #: in KB
STREAMS, QUICK_STREAMS = 1000, 100

NOTES = (
    "token ids are those of a byte-level BPE trained on the benchmark's own texts; memory is that of Python objects, by tracemalloc",
    *engines.NOTES,
)


def rows(fmt: Format, quick: bool) -> Iterator[Row]:
    """All rows of a format."""
    for name in (SHORT, MEDIUM):
        turn = TURNS[name]
        yield Row(fmt.name, f"{name}, chunks by deltas", "us/delta", partial(_named, fmt, name), {OURS: DELTA_SECONDS})
        yield Row(fmt.name, f"{name}, by token ids", "us/id", partial(_ids, fmt, turn), {OURS: DELTA_SECONDS})
    for kind, turn_of in (("content", content_of), ("an argument", argument_of)):
        for size in QUICK_SIZES if quick else SIZES:
            make = partial(_chunks, fmt, turn_of(size << 10), turn_of(SMALLEST << 10))
            yield Row(fmt.name, f"{kind} of {size:,} KB, chunks by deltas", "us/delta", make, FLAT_GOALS)
    count = QUICK_STREAMS if quick else STREAMS
    yield Row(fmt.name, f"{count:,} streams in turn, chunks by deltas", "us/delta", partial(_many, fmt, count), {OURS: DELTA_SECONDS})
    yield Row(fmt.name, f"{count:,} open streams, each beside its text", "bytes", partial(_memory, fmt, count), {OURS: STREAM_BYTES})


def _named(fmt: Format, name: str) -> Mapping[str, Lap]:
    """The row that engines' own parsers stand in, too."""
    return {**_chunks(fmt, TURNS[name]), **engines.laps(fmt.name, name)}


def _chunks(fmt: Format, turn: Message, smaller: Message | None = None) -> Mapping[str, Lap]:
    laps = {}
    for name, made in ((OURS, turn), ("smaller", smaller)):
        if made is not None:
            pieces = deltas(completion(fmt, made, TOOLS))
            laps[name] = lap(partial(_served, fmt, pieces), len(pieces))
    return laps


def _served(fmt: Format, pieces: list[str]) -> None:
    stream = ChunkStream(fmt.stream(tools=TOOLS), model="model")
    for piece in pieces:
        stream.feed(piece)
    stream.close("stop")


def _ids(fmt: Format, turn: Message) -> Mapping[str, Lap]:
    tokenizer = _tokenizer(fmt)
    if tokenizer is None:
        return {}
    text = completion(fmt, turn, TOOLS)
    ids = tokenizer.encode(text).ids
    assert fmt.parse_ids(ids, tokenizer, tools=TOOLS) == fmt.parse(text, tools=TOOLS)

    def run() -> None:
        stream = fmt.stream_ids(tokenizer, tools=TOOLS)
        for number in ids:
            stream.feed(number)
        stream.close("stop")

    return {OURS: lap(run, len(ids))}


@cache
def _tokenizer(fmt: Format) -> Any:
    """A byte-level BPE with the format's control tokens; None where `tokenizers` is not installed."""
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    except ImportError:
        return None
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=2000, initial_alphabet=alphabet, special_tokens=list(fmt.special_tokens), show_progress=False)
    tokenizer.train_from_iterator((completion(fmt, turn, TOOLS) for turn in TURNS.values()), trainer)
    return tokenizer


def _many(fmt: Format, count: int) -> Mapping[str, Lap]:
    pieces = deltas(completion(fmt, TURNS[SHORT], TOOLS))

    def run() -> None:
        streams = [ChunkStream(fmt.stream(tools=TOOLS), model="model") for _ in range(count)]
        for piece in pieces:
            for stream in streams:
                stream.feed(piece)
        for stream in streams:
            stream.close("stop")

    return {OURS: lap(run, count * len(pieces))}


def _memory(fmt: Format, count: int) -> Mapping[str, Lap]:
    """In an interpreter of its own: a server has one format, and those of other rows leave their traces in classes."""
    return fresh("from benchmarks.serving import kept", f"print(kept({fmt.name!r}, {count}))")


def kept(name: str, count: int) -> float:
    """The bytes that an open stream keeps beside its text, within the arguments of a call."""
    fmt = get_format(name)
    text = completion(fmt, TURNS[SHORT], TOOLS)
    text = text[: len(text) * 2 // 3]

    def opened() -> ChunkStream:
        stream = ChunkStream(fmt.stream(tools=TOOLS), model="model")
        for piece in deltas(text):
            stream.feed(piece)
        return stream

    opened()  # the first compiles the grammar
    tracemalloc.start()
    streams = [opened() for _ in range(count)]
    used, _ = tracemalloc.get_traced_memory()
    return used / len(streams) - len(text)
