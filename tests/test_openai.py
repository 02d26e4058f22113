"""Replies and chunks are what OpenAI's own types take, and the chunks join to the completion, whatever the cut."""

import json
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

import chatcodec
import strategies as make
from chatcodec.openai import ChunkStream, to_completion

formats = pytest.mark.parametrize("name", chatcodec.list_formats())
FINISH_REASONS = (None, "stop", "tool_calls", "length")


def numbered() -> Any:
    """A maker of ids that can be foretold."""
    numbers = count()
    return lambda: f"call_{next(numbers)}"


def collected(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """The message of chunks, put together as a client does, and the calls of it by index."""
    message: dict[str, Any] = {"role": None, "content": "", "reasoning_content": "", "tool_calls": {}, "finish_reason": None}
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk)
        (choice,) = chunk["choices"]
        assert message["finish_reason"] is None, "nothing comes behind the finish reason"
        message["finish_reason"] = choice["finish_reason"]
        delta = choice["delta"]
        if "role" in delta:
            assert message["role"] is None
            message["role"] = delta["role"]
        for key in ("content", "reasoning_content"):
            message[key] += delta.get(key, "")
        for part in delta.get("tool_calls", ()):
            first = {"name": part["function"].get("name"), "id": part.get("id"), "arguments": ""}
            call = message["tool_calls"].setdefault(part["index"], first)
            assert call["name"], "the first part of a call has its name"
            call["arguments"] += part["function"]["arguments"]
    return message


@formats
@given(data=st.data())
def test_chunks_join_to_the_completion(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    made = data.draw(make.completions(fmt))
    whole = data.draw(st.booleans())
    stream = ChunkStream(fmt.stream(tools=made.tools, prompt=made.prompt), model="m", call_id=numbered(), whole_calls=whole)
    chunks = [chunk for piece in data.draw(make.cuts(made.text)) for chunk in stream.feed(piece)]
    chunks += stream.close(data.draw(st.sampled_from(FINISH_REASONS)))
    completion = to_completion(stream.reply, model="m", call_id=numbered())
    ChatCompletion.model_validate(completion)
    said, message = completion["choices"][0]["message"], collected(chunks)
    assert message["role"] == "assistant"
    assert message["content"] == (said["content"] or "")
    assert message["reasoning_content"] == (said.get("reasoning_content") or "")
    assert message["finish_reason"] == completion["choices"][0]["finish_reason"]
    dropped = {call["index"] for call in chunks[-1]["choices"][0].get("dropped_tool_calls", ())}
    sent = [call for index, call in sorted(message["tool_calls"].items()) if index not in dropped]
    told = said.get("tool_calls", [])
    assert [call["name"] for call in sent] == [call["function"]["name"] for call in told]
    for call, written in zip(sent, told, strict=True):
        assert repr(json.loads(call["arguments"])) == repr(json.loads(written["function"]["arguments"]))
    if whole:
        assert not dropped
        assert [call["id"] for call in sent] == [call["id"] for call in told]
        assert sorted(message["tool_calls"]) == list(range(len(told)))


@formats
def test_a_call_without_arguments_has_an_empty_object(name: str) -> None:
    fmt = chatcodec.get_format(name)
    turn = {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "now", "arguments": {}}}]}
    rendered = fmt.render([{"role": "user", "content": "What time is it?"}, turn])
    (span,) = rendered.sampled_spans
    assert span is not None
    stream = ChunkStream(fmt.stream(prompt=rendered.text[: span[0]]), model="m")
    chunks = [chunk for piece in rendered.text[slice(*span)] for chunk in stream.feed(piece)] + stream.close("stop")
    (call,) = collected(chunks)["tool_calls"].values()
    assert call["arguments"] == "{}"
    assert to_completion(stream.reply, model="m")["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_what_the_caller_tells_is_used() -> None:
    fmt = chatcodec.get_format("solar_open2")
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    completion = to_completion(fmt.parse("hi"), model="m", id="chatcmpl-1", created=7, usage=usage)
    assert (completion["id"], completion["created"], completion["model"], completion["usage"]) == ("chatcmpl-1", 7, "m", usage)
    stream = ChunkStream(fmt.stream(), model="m", id="chatcmpl-1", created=7, index=2)
    chunks = stream.feed("hi") + stream.close()
    assert {(chunk["id"], chunk["created"], chunk["choices"][0]["index"]) for chunk in chunks} == {("chatcmpl-1", 7, 2)}


def test_ids_are_fresh() -> None:
    stream = chatcodec.get_format("solar_open2").stream()
    ids = {ChunkStream(stream.fork(), model="m").feed("hi")[0]["id"] for _ in range(3)}
    assert len(ids) == 3
