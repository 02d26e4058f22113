"""Schemas whose references go round and branch: reading arguments by them takes linear time, and they say what they can."""

from typing import Any

import pytest

from chatcodec import get_format, list_formats
from chatcodec.values import types_of
from converting import GO, a_call, a_tool, calling, converted
from limits import at_most

WIDTH = 12
KEYWORDS = ("anyOf", "oneOf", "allOf")


def to_itself(keyword: str) -> dict[str, Any]:
    """A definition that refers to itself at each of its branches."""
    return {"d0": {keyword: [{"$ref": "#/$defs/d0"}] * WIDTH}}


def to_the_next(keyword: str) -> dict[str, Any]:
    """A ladder: each definition refers to the next at each of its branches, so that there are more ways than stars."""
    steps = {f"d{step}": {keyword: [{"$ref": f"#/$defs/d{step + 1}"}] * WIDTH} for step in range(WIDTH)}
    return {**steps, f"d{WIDTH}": {"type": "integer"}}


def to_each_other(keyword: str) -> dict[str, Any]:
    """Definitions of which each refers to all."""
    return {f"d{step}": {keyword: [{"$ref": f"#/$defs/d{other}"} for other in range(WIDTH)]} for step in range(WIDTH)}


hostile = pytest.mark.parametrize("made", (to_itself, to_the_next, to_each_other))
each_keyword = pytest.mark.parametrize("keyword", KEYWORDS)


def tool_of(definitions: dict[str, Any]) -> dict[str, Any]:
    return a_tool("f", {"x": {"$ref": "#/$defs/d0"}}, **{"$defs": definitions, "additionalProperties": {"$ref": "#/$defs/d0"}})


@hostile
@each_keyword
@pytest.mark.parametrize("name", list_formats())
def test_arguments_are_read_in_linear_time(name: str, keyword: str, made: Any) -> None:
    fmt, tools = get_format(name), [tool_of(made(keyword))]
    messages: list[Any] = [GO, {"role": "assistant", "reasoning_content": "?", "tool_calls": [a_call("f", {"x": 1, "y": None})]}]
    with at_most(20):
        rendered = fmt.render(messages, tools)
        assert rendered.losses is not None
        start, end = rendered.sampled_spans[-1] or (0, 0)
        completion = rendered.text[start:end]
        reply = fmt.parse(completion, tools=tools)
        stream = fmt.stream(tools=tools)
        for character in completion:
            stream.feed(character)
        stream.close()
    assert reply.message == stream.reply.message
    if made is to_the_next:
        assert reply.message.tool_calls[0].arguments["x"] == 1


@hostile
@each_keyword
def test_tables_are_mended_in_linear_time(keyword: str, made: Any) -> None:
    arguments = {"x": {"a": None, "b": [{"c": 1.0}], "d": None}, "y": 2.0}
    row = {"messages": [GO, calling(a_call("f", arguments))], "tools": [tool_of(made(keyword))]}
    with at_most(20):
        outcome = converted(row, "openai", "openai")
    assert outcome.row is not None


@pytest.mark.parametrize(
    ("schema", "types"),
    (
        ({"$ref": "#/$defs/whole"}, {"integer"}),
        ({"anyOf": [{"$ref": "#/$defs/whole"}, {"$ref": "#/$defs/whole"}, {"type": "null"}]}, {"integer", "null"}),
        ({"allOf": [{"$ref": "#/$defs/round"}, {"type": "string"}]}, {"string"}),  # the round one says nothing
        ({"anyOf": [{"$ref": "#/$defs/round"}, {"type": "string"}]}, None),
        ({"$ref": "#/$defs/nowhere"}, None),
        ({"$ref": "#/$defs/list/anyOf/1"}, {"null"}),
        ({"$ref": f"#/$defs/list/anyOf/{'9' * 5000}"}, None),
        ({"$ref": "#/$defs/a%20b~1c"}, {"boolean"}),
        ({"$ref": "#"}, {"object"}),
        ({"$ref": "#anchor"}, None),
        ({"$ref": "https://example.org/schema#/$defs/whole"}, None),
        ({"$ref": "#/$defs/tree"}, {"object", "null"}),  # holds itself, but in a member
    ),
)
def test_what_references_say(schema: dict[str, Any], types: set[str] | None) -> None:
    tree = {"anyOf": [{"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}}, {"type": "null"}]}
    choice = {"anyOf": [{}, {"type": "null"}]}
    named = {"whole": {"type": "integer"}, "round": {"$ref": "#/$defs/round"}, "tree": tree, "list": choice, "a b/c": {"type": "boolean"}}
    root = {"type": "object", "$defs": named}
    assert types_of(schema, root) == types


def test_deep_schemas_say_what_can_be_reached() -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(10_000):
        schema = {"anyOf": [schema, {"type": "integer"}]}
    assert types_of(schema) is None
