"""What the three policies make of the same oddity, the same for every format."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

import chatcodec
from chatcodec.errors import DIAGNOSTICS
from chatcodec.grammar import markers
from test_streams import ARGUMENTS, TOOLS, damaged, texts_of

formats = pytest.mark.parametrize("name", chatcodec.list_formats())
DAMAGED = 1_000
#: What a call was put right by; under `raw` such a call is not handed out.
MENDED = frozenset(
    ("implicit_reasoning_end", "unclosed_parameter", "unclosed_call", "missing_call_open", "foreign_dialect", "double_encoded")
)


def calls_of(reply: chatcodec.Reply) -> list[str]:
    return [repr((call.name, call.arguments)) for call in reply.message.tool_calls]


def damaged_texts(fmt: chatcodec.Format) -> Iterator[str]:
    """Damaged completions, the same on every run."""
    dice, whole = random.Random(fmt.name), texts_of(fmt)
    literals = sorted({literal for literal in markers(fmt.name).values() if len(literal) < 80})
    for _ in range(DAMAGED):
        yield damaged(dice.choice(whole), literals, dice)


@formats
def test_strict_refuses_what_the_table_says(name: str) -> None:
    """Strict gives what recover gives, or refuses at the first diagnostic that is to be refused."""
    fmt = chatcodec.get_format(name)
    for text in damaged_texts(fmt):
        reply = fmt.parse(text, tools=TOOLS, finish_reason="stop")
        refused = [diagnostic for diagnostic in reply.diagnostics if DIAGNOSTICS[diagnostic.code][1]]
        if not refused:
            assert fmt.parse(text, tools=TOOLS, finish_reason="stop", policy="strict") == reply
            continue
        with pytest.raises(chatcodec.ParseError) as error:
            fmt.parse(text, tools=TOOLS, finish_reason="stop", policy="strict")
        assert error.value.diagnostics[-1] == refused[0], text


@formats
def test_raw_hands_out_nothing_that_was_mended(name: str) -> None:
    fmt = chatcodec.get_format(name)
    for text in damaged_texts(fmt):
        reply = fmt.parse(text, tools=TOOLS, finish_reason="stop")
        raw = fmt.parse(text, tools=TOOLS, finish_reason="stop", policy="raw")
        codes = {diagnostic.code for diagnostic in reply.diagnostics}
        if not codes & MENDED:
            assert calls_of(raw) == calls_of(reply), text
        assert "implicit_reasoning_end" not in {diagnostic.code for diagnostic in raw.diagnostics}
        mended = [diagnostic for diagnostic in raw.diagnostics if diagnostic.code in MENDED]
        for call in raw.segments:
            if call.kind == "call":
                assert not any(call.span[0] <= each.span[0] and each.span[1] <= call.span[1] for each in mended), text


def turn_of(fmt: chatcodec.Format, *calls: tuple[str, dict[str, Any]], content: str | None = None) -> str:
    """The completion of a turn with these calls, as the format writes it."""
    made = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": arguments}} for n, (name, arguments) in enumerate(calls)
    ]
    turn = {"role": "assistant", "reasoning_content": "R", "content": content, "tool_calls": made}
    rendered = fmt.render([{"role": "user", "content": "Go on."}, turn], tools=TOOLS)
    span = rendered.sampled_spans[-1]
    assert span is not None
    return rendered.text[slice(*span)]


@formats
def test_an_unknown_tool(name: str) -> None:
    fmt = chatcodec.get_format(name)
    text = turn_of(fmt, ("serach", {}))
    for policy in ("recover", "raw"):
        reply = fmt.parse(text, tools=TOOLS, policy=policy)
        assert [call.name for call in reply.message.tool_calls] == ["serach"]
        assert [diagnostic.code for diagnostic in reply.diagnostics] == ["unknown_tool"]
    with pytest.raises(chatcodec.ParseError, match="unknown_tool"):
        fmt.parse(text, tools=TOOLS, policy="strict")


@formats
def test_an_argument_that_comes_twice(name: str) -> None:
    fmt = chatcodec.get_format(name)
    text = turn_of(fmt, ("search", {"query": "Q9", "limit": 1}))
    first, second = text.index("query"), text.index("limit")
    if fmt.name == "inkling":
        text = text.replace('"limit":1', '"query":"Q9"')
    else:  # the value of the first stands where that of the second stood
        value = text[first + len("query") : text.index("Q9") + 2]
        text = text[:second] + "query" + value + text[text.index("1", second) + 1 :]
    for policy in ("recover", "raw"):
        reply = fmt.parse(text, tools=TOOLS, policy=policy)
        assert [call.arguments for call in reply.message.tool_calls] == [{"query": "Q9"}]
        assert [diagnostic.code for diagnostic in reply.diagnostics] == ["duplicate_argument"]
    with pytest.raises(chatcodec.ParseError, match="duplicate_argument"):
        fmt.parse(text, tools=TOOLS, policy="strict")


@pytest.mark.parametrize("name", ["qwen3_5", "solar_open2"])
def test_a_call_in_reasoning_that_never_ended(name: str) -> None:
    fmt = chatcodec.get_format(name)
    text = turn_of(fmt, ("now", ARGUMENTS[1]))
    closer = next(literal for literal in sorted(markers(name).values(), key=len) if "think" in literal and literal in text)
    text = text.replace(closer, "", 1)
    assert [call.name for call in fmt.parse(text, tools=TOOLS).message.tool_calls] == ["now"]
    raw = fmt.parse(text, tools=TOOLS, policy="raw")
    assert raw.message.tool_calls == []
    assert [diagnostic.code for diagnostic in raw.diagnostics] == ["unclosed_reasoning"]
    with pytest.raises(chatcodec.ParseError, match="implicit_reasoning_end"):
        fmt.parse(text, tools=TOOLS, policy="strict")


def test_text_after_a_call() -> None:
    fmt = chatcodec.get_format("qwen3_5")
    text = turn_of(fmt, ("now", {}), content="Before.").replace("<|im_end|>", "\nBehind.<|im_end|>")
    for policy in ("strict", "recover", "raw"):
        reply = fmt.parse(text, tools=TOOLS, policy=policy)
        assert reply.message.content is not None
        assert "Behind." in reply.message.content
        assert [diagnostic.code for diagnostic in reply.diagnostics] == ["text_after_call"]


def test_a_call_in_a_foreign_dialect() -> None:
    fmt = chatcodec.get_format("qwen3_5")
    text = 'R</think><tool_call>{"name": "now", "arguments": {}}</tool_call><|im_end|>'
    assert [call.name for call in fmt.parse(text, tools=TOOLS).message.tool_calls] == ["now"]
    assert fmt.parse(text, tools=TOOLS, policy="raw").message.tool_calls == []
    with pytest.raises(chatcodec.ParseError, match="foreign_dialect"):
        fmt.parse(text, tools=TOOLS, policy="strict")
