"""Rows about completions: the batch parse, the parse by deltas, and whether a delta costs the same in a long text.

All contestants get the same text and the same tools, and before a race each must have found the same: the scanner an equal
message, transformers equal calls.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from chatcodec import Format

from .fixtures import ARGUMENT, MEDIUM, SHORT, TOOLS, TURNS, Message, argument_of, completion, content_of, deltas
from .peers import response_parser
from .scanner import SCANNERS
from .table import OURS, Row
from .timing import Lap, lap

#: How many times as long as the scanner a batch parse may take.
BATCH_GOALS = {SHORT: 5.0, MEDIUM: 3.0, ARGUMENT: 1.5}
#: A delta may take half as long as transformers needs, and in a long text no longer than in a short one (but for noise).
DELTA_GOALS = {"transformers": 0.5}
FLAT_GOALS = DELTA_GOALS | {"smaller": 1.25}
#: ResponseParser copies its whole buffer at each delta, so that longer texts would take minutes.
PEER_CAP = 1 << 18
SMALLEST, SIZES, QUICK_SIZES = 1, (1, 32, 1024), (1, 16, 128)  #: of flat rows, in KB

NOTES = (f"transformers' ResponseParser is fed at most {PEER_CAP // 1024} KB of a text, because its time a delta grows with the text",)


def rows(fmt: Format, quick: bool) -> Iterator[Row]:
    """All rows of a format."""
    for name, turn in TURNS.items():
        goals = {"scanner": BATCH_GOALS[name]} if name in BATCH_GOALS else {}
        yield Row(fmt.name, name, "us", partial(_batch, fmt, turn), goals)
    for name, turn in TURNS.items():
        yield Row(fmt.name, f"{name}, by deltas", "us/delta", partial(_streams, fmt, turn), DELTA_GOALS)
    for kind, turn_of in (("content", content_of), ("an argument", argument_of)):
        for size in QUICK_SIZES if quick else SIZES:
            smaller = None if size == SMALLEST else turn_of(SMALLEST << 10)
            goals = FLAT_GOALS if smaller else DELTA_GOALS
            yield Row(
                fmt.name, f"{kind} of {size:,} KB, by deltas", "us/delta", partial(_streams, fmt, turn_of(size << 10), smaller), goals
            )


def _batch(fmt: Format, turn: Message) -> Mapping[str, Lap]:
    text = completion(fmt, turn, TOOLS)
    message = fmt.parse(text, tools=TOOLS).message
    laps = {OURS: lap(lambda: fmt.parse(text, tools=TOOLS))}
    if scan := SCANNERS.get(fmt.name):
        assert scan(text, TOOLS) == message, f"the scanner of {fmt.name} reads {scan(text, TOOLS)}, and not {message}"
        laps["scanner"] = lap(lambda: scan(text, TOOLS))
    if parser := _peer(fmt):
        assert _calls(read := _fed(parser, [text])) == _our_calls(message), f"transformers reads {read}, and not {message}"
        laps["transformers"] = lap(lambda: _fed(parser, [text]))
    return laps


def _streams(fmt: Format, turn: Message, smaller: Message | None = None) -> Mapping[str, Lap]:
    text = completion(fmt, turn, TOOLS)
    pieces = deltas(text)
    message = fmt.parse(text, tools=TOOLS).message
    assert (streamed := stream(fmt, pieces, TOOLS)) == message, f"the stream reads {streamed}, and not {message}"
    laps = {OURS: lap(lambda: stream(fmt, pieces, TOOLS), len(pieces))}
    if parser := _peer(fmt):
        fed = pieces[: PEER_CAP // len(pieces[0])]
        assert fed != pieces or _calls(read := _fed(parser, fed)) == _our_calls(message), f"transformers reads {read}, and not {message}"
        laps["transformers"] = lap(lambda: _fed(parser, fed), len(fed))
    if smaller:
        few = deltas(completion(fmt, smaller, TOOLS))
        laps["smaller"] = lap(lambda: stream(fmt, few, TOOLS), len(few))
    return laps


def stream(fmt: Format, pieces: list[str], tools: list[dict[str, Any]] | None) -> Any:
    """The message that a stream gives."""
    opened = fmt.stream(tools=tools)
    feed = opened.feed
    for piece in pieces:
        feed(piece)
    opened.close("stop")
    return opened.reply.message


def _peer(fmt: Format) -> Callable[[list[dict[str, Any]]], Any] | None:
    prompt = fmt.render([{"role": "user", "content": "Go on."}], add_generation_prompt=True)
    return response_parser(fmt.name, prompt.text)


def _fed(parser: Callable[[list[dict[str, Any]]], Any], pieces: list[str]) -> dict[str, Any]:
    opened = parser(TOOLS)
    feed = opened.feed
    for piece in pieces:
        feed(piece)
    message: dict[str, Any] = opened.finalize()[0]
    return message


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [call["function"] for call in message.get("tool_calls", ())]


def _our_calls(message: Any) -> list[dict[str, Any]]:
    return [{"name": call.function.name, "arguments": call.function.arguments} for call in message.tool_calls]
