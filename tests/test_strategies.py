"""The strategies make what they say they make; the laws rest on that."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import chatcodec
import strategies as make


@given(make.texts(("<|x", "|>")))
def test_texts_are_texts(text: str) -> None:
    text.encode("utf-8")


@given(make.json_values() | make.tools() | make.schemas())
def test_json_survives_json(value: Any) -> None:
    assert json.dumps(json.loads(json.dumps(value, allow_nan=False))) == json.dumps(value)


@given(st.data())
def test_conversations_are_well_formed(data: st.DataObject) -> None:
    tools = data.draw(make.tools(min_size=1))
    messages = data.draw(make.conversations(tools, fit=True))
    json.dumps([messages, tools], allow_nan=False)
    assert [message["role"] for message in messages[1:]].count("system") == 0
    open_calls: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == open_calls.pop(0)
        else:
            assert not open_calls, "calls without results may only end a conversation"
        for call in message.get("tool_calls", ()):
            assert call["id"] not in seen
            assert call["function"]["name"] in {tool["function"]["name"] for tool in tools}
            seen.add(call["id"])
            open_calls.append(call["id"])


@given(st.data())
def test_cuts_join_to_the_text(data: st.DataObject) -> None:
    text = data.draw(make.texts())
    assert "".join(data.draw(make.cuts(text))) == text


@given(st.data())
def test_completions_stand_between_prompt_and_stop(data: st.DataObject) -> None:
    for name in chatcodec.list_formats():
        fmt = chatcodec.get_format(name)
        made = data.draw(make.canonical(fmt))
        assert made.messages[-1]["role"] == "assistant"
        assert made.prompt and made.text
