"""Streams can be forked, pickled and saved as JSON at every place, and damaged completions keep them honest.

A damaged completion raises nothing, gives in a stream what it gives in one piece, loses no character without saying so, and
never ends a call that was cut off.
"""

import copy
import json
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import chatcodec
import strategies as make
from chatcodec.grammar import markers

formats = pytest.mark.parametrize("name", chatcodec.list_formats())
#: Damaged completions of each format: 10,000 in CI.
DAMAGED = 10_000 if os.environ.get("CI") == "true" else 1_000

_TYPES = {"query": "string", "limit": "integer", "tags": "array"}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {key: {"type": kind} for key, kind in types.items()}}},
    }
    for name, types in (("search", _TYPES), ("now", dict[str, str]()))
]
ARGUMENTS: tuple[dict[str, Any], ...] = ({"query": 'tides "at" 5 < 6\n𝄞', "limit": 3, "tags": ["a", {"b": None}]}, {})


def texts_of(fmt: chatcodec.Format) -> list[str]:
    """Completions as the model writes them: every way in which reasoning, content and calls come together."""
    calls = [
        {"id": f"call_{number}", "type": "function", "function": {"name": tool["function"]["name"], "arguments": arguments}}
        for number, (tool, arguments) in enumerate(zip(TOOLS, ARGUMENTS, strict=True))
    ]
    found = []
    for reasoning in (None, "I think,\nso I look."):
        for content in (None, "Here it is: `x < y`.\n"):
            for made in ([], calls[:1], calls):
                turn = {"role": "assistant", "content": content, "reasoning_content": reasoning, "tool_calls": made}
                rendered = fmt.render([{"role": "user", "content": "Go on."}, turn], tools=TOOLS)
                if span := rendered.sampled_spans[-1]:
                    found.append(rendered.text[slice(*span)])
    return found


# ------------------------------------------------------------------------------------------------------ forked and resumed

WAYS: dict[str, Callable[[chatcodec.Format, chatcodec.Stream], Any]] = {
    "fork": lambda fmt, stream: stream.fork(),
    "copy": lambda fmt, stream: copy.copy(stream),
    "pickle": lambda fmt, stream: pickle.loads(pickle.dumps(stream)),
    "JSON": lambda fmt, stream: fmt.resume(stream.to_json()),
}


@formats
@pytest.mark.parametrize("way", WAYS)
def test_a_stream_goes_on_elsewhere_from_every_cut(name: str, way: str) -> None:
    fmt = chatcodec.get_format(name)
    for text in texts_of(fmt)[-3:]:
        whole = fmt.parse(text, tools=TOOLS, finish_reason="stop")
        stream = fmt.stream(tools=TOOLS)
        events: list[Any] = []
        for cut, character in enumerate(text):
            other = WAYS[way](fmt, stream)
            told = [*events, *other.feed(text[cut:]), *other.close("stop")]
            assert other.reply == whole, f"cut at {cut}"
            assert json_of(told) == [(call.name, call.arguments) for call in whole.message.tool_calls]
            events += stream.feed(character)
        stream.close("stop")
        assert stream.reply == whole, "the streams that went on elsewhere left this one alone"


def json_of(events: list[Any]) -> list[tuple[str, Any]]:
    """The calls that events tell."""
    names = {event.index: event.name for event in events if isinstance(event, chatcodec.ToolCallStart)}
    parts: dict[int, list[str]] = {index: [] for index in names}
    for event in events:
        if isinstance(event, chatcodec.ArgumentsDelta):
            parts[event.index].append(event.text)
    ended = [event.index for event in events if isinstance(event, chatcodec.ToolCallEnd)]
    return [(names[index], json.loads("".join(parts[index]))) for index in ended]


@formats
@given(data=st.data())
def test_any_state_can_be_saved(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    made = data.draw(make.completions(fmt))
    cut = data.draw(st.integers(0, len(made.text)))
    given: dict[str, Any] = {"tools": made.tools, "prompt": made.prompt, "infer_types": data.draw(st.booleans())}
    stream = fmt.stream(**given)
    for piece in data.draw(make.cuts(made.text[:cut])):
        stream.feed(piece)
    resumed = fmt.resume(stream.to_json())
    assert resumed.feed(made.text[cut:]) == stream.feed(made.text[cut:])
    assert resumed.close() == stream.close()
    assert resumed.reply == stream.reply
    assert resumed.reply == fmt.parse(made.text, **given)


def test_another_process_goes_on() -> None:
    fmt = chatcodec.get_format("qwen3_5")
    text = texts_of(fmt)[-1]
    stream = fmt.stream(tools=TOOLS, policy="strict")
    stream.feed(text[: len(text) // 2])
    script = (
        "import json, sys, chatcodec\n"
        "saved, rest = json.load(sys.stdin)\n"
        "stream = chatcodec.get_format('qwen3_5').resume(saved)\n"
        "stream.feed(rest); stream.close('stop')\n"
        "print(json.dumps(stream.reply.message.model_dump()))"
    )
    given = json.dumps([stream.to_json(), text[len(text) // 2 :]])
    done = subprocess.run([sys.executable, "-c", script], input=given, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == fmt.parse(text, tools=TOOLS).message.model_dump()


NO_STREAMS = ("", "{", "[]", "{}", '{"version": 0}', '{"version": 1, "machine": {"Machine": {}}}', '{"version": 1, "machine": {"os": {}}}')


@pytest.mark.parametrize("saved", NO_STREAMS)
def test_what_is_no_saved_stream_is_refused(saved: str) -> None:
    with pytest.raises(chatcodec.CodecError, match="saved stream"):
        chatcodec.get_format("qwen3_5").resume(saved)


def test_a_stream_resumes_where_it_belongs() -> None:
    stream = chatcodec.get_format("qwen3_5").stream()
    with pytest.raises(chatcodec.CodecError, match="one of qwen3_5"):
        chatcodec.get_format("inkling").resume(stream.to_json())
    stream.close()
    with pytest.raises(chatcodec.CodecError, match="closed"):
        stream.to_json()


def test_tools_that_json_cannot_hold_are_named() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"since": object()}}}
    with pytest.raises(chatcodec.CodecError, match="cannot be saved as JSON: a object"):
        chatcodec.get_format("qwen3_5").stream(tools=[tool]).to_json()


# ------------------------------------------------------------------------------------------------------ damaged completions


def damaged(text: str, literals: list[str], dice: random.Random) -> str:
    """A completion with one to three damages: cut, spliced, a marker doubled, dropped or put in, random characters."""
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        start, end = sorted((dice.randrange(len(text) + 1), dice.randrange(len(text) + 1)))
        present = [literal for literal in literals if literal in text]
        match dice.randrange(7):
            case 0:
                text = text[:end]
            case 1:
                text = text[:start] + text[end:]
            case 2:
                text = text[:end] + text[start:]
            case 3 if present:
                literal = dice.choice(present)
                text = text.replace(literal, literal * 2, 1)
            case 4 if present:
                text = text.replace(dice.choice(present), "", 1)
            case 5:
                text = text[:start] + dice.choice(literals) + text[start:]
            case _:
                text = (
                    text[:start]
                    + "".join(dice.choice('<>|/"{}\\ \nx\u2028\U0001f600\x00') for _ in range(dice.randrange(6)))
                    + text[start:]
                )
    return text


def cut_up(text: str, dice: random.Random) -> list[str]:
    """The text in random pieces, most of a token's length."""
    pieces, at = [], 0
    while at < len(text):
        size = dice.choice((1, 2, 3, 4, 4, 5, 8, 40))
        pieces.append(text[at : at + size])
        at += size
    return pieces


@formats
def test_damaged_completions(name: str) -> None:
    fmt = chatcodec.get_format(name)
    dice = random.Random(name)
    whole = texts_of(fmt)
    literals = sorted({literal for literal in markers(name).values() if len(literal) < 80})
    for _ in range(DAMAGED):
        text = damaged(dice.choice(whole), literals, dice)
        finish_reason: Any = dice.choice((None, "stop", "tool_calls", "length"))
        stream = fmt.stream(tools=TOOLS)
        events = [event for piece in cut_up(text, dice) for event in stream.feed(piece)] + stream.close(finish_reason)
        reply = fmt.parse(text, tools=TOOLS, finish_reason=finish_reason)
        assert stream.reply == reply, text
        assert json_of(events) == [(call.name, call.arguments) for call in reply.message.tool_calls], text
        assert not (reply.partial and reply.finish_reason != "length"), text
        unaccounted = left_over(fmt, text, reply)
        assert not unaccounted, (text, unaccounted)


def left_over(fmt: chatcodec.Format, text: str, reply: chatcodec.Reply) -> list[str]:
    """The stretches of a text that are in no segment and in no diagnostic's span, but for markers and blanks."""
    taken = sorted([segment.span for segment in reply.segments] + [diagnostic.span for diagnostic in reply.diagnostics])
    found, at = [], 0
    for start, end in [*taken, (len(text), len(text))]:
        if start > at:
            found.append(text[at:start])
        at = max(at, end)
    literals = sorted(markers(fmt.name).values(), key=len, reverse=True)
    rest = []
    for stretch in found:
        for literal in literals:
            stretch = stretch.replace(literal, "")
        if stretch.strip():
            rest.append(stretch)
    return rest


@pytest.mark.parametrize(
    "text",
    [
        '<|message_model|>f<|content_invoke_tool_json|><|content_model_end_sampling|>x"',
        "<|content_thinking|>x<|message_model|><|content_thinking|>y<",
        "x<|message_model|>f<|content_invoke_tool_json|>{<|end_message|><|content_text|>y<|end",
    ],
    ids=["an empty body and a quote", "a second block cut in a marker", "a broken call and a cut marker"],
)
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_odd_texts_are_read_alike_whatever_the_cut(text: str, size: int) -> None:
    """Found by chance among many: the order of diagnostics, and how a body counts that is read once more and is empty."""
    fmt = chatcodec.get_format("inkling")
    stream = fmt.stream()
    for start in range(0, len(text), size):
        stream.feed(text[start : start + size])
    stream.close()
    reply = fmt.parse(text)
    assert (stream.reply.diagnostics, stream.reply.segments, stream.reply.message) == (reply.diagnostics, reply.segments, reply.message)
