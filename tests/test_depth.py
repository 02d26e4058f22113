"""Values and schemas that nest as deep as Python's JSON does: each is written, read and compared, or refused by name."""

from typing import Any

import pytest

from chatcodec import CodecError, ParseError, get_format, list_formats
from chatcodec.convert import SHAPES, plan
from chatcodec.jsontext import DEEPEST
from chatcodec.openai import ChunkStream, to_completion
from converting import GO, a_call, a_tool, converted

DEPTHS = (150, 450, 900)
each_depth = pytest.mark.parametrize("depth", DEPTHS)
each_format = pytest.mark.parametrize("name", list_formats())


def nested(depth: int, kind: str) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value} if kind == "object" else [value]
    return value


def nested_schema(depth: int, key: str) -> Any:
    schema: Any = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}} if key == "properties" else {key: schema if key == "items" else [schema]}
    return schema


def a_conversation(arguments: dict[str, Any]) -> list[dict[str, Any]]:
    return [GO, {"role": "assistant", "reasoning_content": "?", "tool_calls": [a_call("f", arguments)]}]


@each_format
@each_depth
@pytest.mark.parametrize("kind", ("object", "array"))
def test_deep_arguments(name: str, depth: int, kind: str) -> None:
    fmt, tools = get_format(name), [a_tool("f", {"x": {"type": kind}})]
    value = nested(depth, kind)
    rendered = fmt.render(a_conversation({"x": value, "y": value}), tools)
    lost = {loss.path.rpartition(".")[2] for loss in rendered.losses if loss.code == "value_type_lost"}
    start, end = rendered.sampled_spans[-1] or (0, 0)
    completion = rendered.text[start:end]
    reply = fmt.parse(completion, tools=tools)
    if "arguments" in lost:
        assert [(found.code, found.severity) for found in reply.diagnostics] == [("malformed_json", "error")]
    else:
        back = reply.message.tool_calls[0].arguments
        assert {argument for argument in back if back[argument] != value} == lost
    assert to_completion(reply, model="m")["choices"]
    stream = fmt.stream(tools=tools)
    for piece in range(0, len(completion), 7):
        stream.feed(completion[piece : piece + 7])
    stream = fmt.resume(stream.fork().to_json())
    stream.close()
    assert stream.reply == reply
    chunks = ChunkStream(fmt.stream(tools=tools), model="m")
    assert chunks.feed(completion) + chunks.close()
    if "arguments" in lost:
        with pytest.raises(ParseError):
            fmt.parse_prompt(rendered.text)
    else:
        assert fmt.parse_prompt(rendered.text).tools


@each_format
@each_depth
@pytest.mark.parametrize("key", ("properties", "items", "anyOf", "oneOf"))
def test_deep_schemas(name: str, depth: int, key: str) -> None:
    fmt, tools = get_format(name), [a_tool("f", {"x": nested_schema(depth, key)})]
    try:
        rendered = fmt.render(a_conversation({"x": [1.0], "y": None}), tools)
    except CodecError:
        assert depth > DEEPEST
        return
    assert rendered.losses is not None
    start, end = rendered.sampled_spans[-1] or (0, 0)
    stream = fmt.stream(tools=tools)
    stream.feed(rendered.text[start:end])
    stream.close()
    assert stream.reply == fmt.parse(rendered.text[start:end], tools=tools)


@each_depth
@pytest.mark.parametrize("target", (*SHAPES, *list_formats()))
def test_deep_rows(depth: int, target: str) -> None:
    row = {"messages": a_conversation({"x": nested(depth, "object")}), "tools": [a_tool("f", {"x": {"type": "object"}})]}
    outcome = converted(row, "openai", target)
    if outcome.row is not None:
        assert converted(outcome.row, target, "openai") is not None
        assert plan(target, "openai")
