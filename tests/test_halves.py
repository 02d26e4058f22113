"""Halves of surrogate pairs, which Python's strings hold and no UTF-8 does: every text that holds one is read, written or refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatcodec import ParseError, get_format, list_formats
from chatcodec.convert import SHAPES
from chatcodec.events import ArgumentsDelta
from converting import GO, a_call, a_tool, converted

each_format = pytest.mark.parametrize("name", list_formats())
texts = st.text(st.sampled_from(("\ud83d", "\ude00", "\udfff", "é", "a", '"', "\\", "\n")), max_size=6).filter(
    lambda text: text.strip() == text
)
values = st.recursive(texts | st.integers(), lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2))
TOOLS = [a_tool("f", {"array": {"type": "array"}, "object": {"type": "object"}, "any": {}, "text": {"type": "string"}})]


@st.composite
def arguments(draw: st.DrawFn) -> dict[str, Any]:
    kinds = {"array": st.lists(values, max_size=2), "object": st.dictionaries(texts, values, max_size=2), "any": values, "text": texts}
    return draw(st.fixed_dictionaries({}, optional=kinds))


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    calling = {"role": "assistant", "reasoning_content": draw(texts), "tool_calls": [a_call("f", draw(arguments()))]}
    answered = {"role": "tool", "tool_call_id": "c0", "content": draw(texts)}
    return [GO, {"role": "user", "content": draw(texts)}, calling, answered]


def holds_half(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


@each_format
@given(messages=conversations())
def test_a_completion_is_read_alike_in_any_pieces(name: str, messages: list[dict[str, Any]]) -> None:
    fmt = get_format(name)
    rendered = fmt.render(messages, TOOLS)
    lost = {loss.path.rpartition(".")[2] for loss in rendered.losses if loss.code == "value_type_lost"}
    start, end = rendered.sampled_spans[0] or (0, 0)
    completion = rendered.text[start:end]
    reply = fmt.parse(completion, tools=TOOLS)
    given = messages[2]["tool_calls"][0]["function"]["arguments"]
    back = reply.message.tool_calls[0].arguments
    assert {argument for argument in back if back[argument] != given[argument]} <= (back.keys() if "arguments" in lost else lost)
    assert not any(holds_half(value) for value in back.values() if not isinstance(value, str))
    stream = fmt.stream(tools=TOOLS)
    events = [event for character in completion for event in stream.feed(character)] + stream.close()
    assert stream.reply == reply
    sent = "".join(event.text for event in events if isinstance(event, ArgumentsDelta))
    assert json.loads(sent) == back


@each_format
@given(messages=conversations())
def test_a_prompt_is_read_or_refused(name: str, messages: list[dict[str, Any]]) -> None:
    fmt = get_format(name)
    text = fmt.render(messages, TOOLS).text
    if holds_half(text):
        with pytest.raises(ParseError, match="half of a surrogate pair") as refused:
            fmt.parse_prompt(text)
        assert "\ud800" <= text[refused.value.position] <= "\udfff"
    else:
        assert fmt.parse_prompt(text).tools


@pytest.mark.parametrize("target", (*SHAPES, *list_formats()))
@given(messages=conversations())
def test_rows_are_converted_or_refused(target: str, messages: list[dict[str, Any]]) -> None:
    outcome = converted({"messages": messages, "tools": TOOLS}, "openai", target)
    if outcome.row is not None:
        converted(outcome.row, target, "openai")
