"""What Arrow does to the rows of a data set is undone or named, key by key: padding, numbers, the order of keys and of results."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import strategies as make
from chatcodec.convert import Outcome
from chatcodec.losses import same
from converting import GO, OBJECTS, a_call, a_tool, calling, converted, row_of, said
from limits import at_most


def _union(one: Any, other: Any) -> Any:
    """The struct that holds the keys of both."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: _union(one.get(key), other.get(key)) for key in [*one, *(key for key in other if key not in one)]}
    return one if other is None else other


def _padded(value: Any, struct: Any) -> Any:
    """A value as a column of that struct gives it back."""
    if isinstance(value, dict) and isinstance(struct, dict):
        return {key: _padded(value.get(key), inner) for key, inner in struct.items()}
    return value


@given(data=st.data())
def test_padding_is_undone_or_named(data: st.DataObject) -> None:
    tools = data.draw(make.tools(min_size=2))
    calls = [a_call(tool["function"]["name"], data.draw(make.arguments(tool, fit=True)), f"c{index}") for index, tool in enumerate(tools)]
    struct: Any = {}
    for call in calls:
        struct = _union(struct, call["function"]["arguments"])
    padded = [a_call(call["function"]["name"], _padded(call["function"]["arguments"], struct), call["id"]) for call in calls]
    outcome = converted({"messages": [GO, calling(*padded)], "tools": tools}, "openai", "openai", **OBJECTS)
    found = row_of(outcome)["messages"][1]["tool_calls"]
    for index, (call, other) in enumerate(zip(calls, found, strict=True)):
        path = f"messages[1].tool_calls[{index}].function.arguments"
        required = tools[index]["function"].get("parameters", {}).get("required", ())
        named = {repair.code: str(repair.detail).split(",") for repair in outcome.repairs if repair.path == path}
        given_arguments, read = call["function"]["arguments"], other["function"]["arguments"]
        for key in struct:
            inner = [name for names in named.values() for name in names if name == key or name.startswith((f"{key}.", f"{key}["))]
            if key in given_arguments and given_arguments[key] is not None:
                assert key in read
                assert same(read[key], given_arguments[key]) or inner
            elif key in read:
                assert read[key] is None
                # a key that its tool requires has to be there, so that its null is taken for the caller's own
                assert key in named.get("ambiguous_null", ()) or key in given_arguments or key in required
            else:
                assert key in named["null_padding_removed"]


def test_arguments_of_another_tool_are_removed_and_those_of_ones_own_are_not_guessed() -> None:
    tools = [
        a_tool("f", {"a": {"type": "string"}, "b": {"type": "string"}, "n": {"type": ["integer", "null"]}, "any": {}}, required=["b", "n"]),
        a_tool("g", {"other": {"type": "string"}}),
        a_tool("free", {}, additionalProperties=True),
        {"type": "function", "function": {"name": "bare"}},
    ]
    nulls = {"a": None, "b": None, "n": None, "any": None, "other": None}
    made = {name: converted({"messages": [GO, calling(a_call(name, nulls))], "tools": tools}, "openai", "openai", **OBJECTS) for name in
            ("f", "g", "free", "bare", "unknown")}  # fmt: skip
    kept = {name: list(row_of(outcome)["messages"][1]["tool_calls"][0]["function"]["arguments"]) for name, outcome in made.items()}
    assert kept == {"f": ["b", "n", "any"], "g": [], "free": list(nulls), "bare": [], "unknown": list(nulls)}
    assert "null_padding_removed:a,other" in said(made["f"])
    assert "ambiguous_null:b,any" in said(made["f"]), "n has to be there and may be null: that null is the caller's own"
    assert "ambiguous_null:a,b,n,any,other" in said(made["unknown"])


def test_structs_within_arguments_and_numbers() -> None:
    point = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "number"}}}
    properties = {"at": {"$ref": "#/$defs/point"}, "all": {"type": "array", "items": {"anyOf": [point, {"type": "null"}]}}}
    tools = [a_tool("f", {**properties, "free": {"type": "object"}}, **{"$defs": {"point": point}})]
    given_arguments = {
        "at": {"x": 3.0, "y": 1.0, "z": None},
        "all": [{"x": None, "y": 2.0}, None, {"x": 2.0**60, "y": None}],
        "free": {"k": None, "n": 1.0},
    }
    outcome = converted({"messages": [GO, calling(a_call("f", given_arguments))], "tools": tools}, "openai", "openai", **OBJECTS)
    read = row_of(outcome)["messages"][1]["tool_calls"][0]["function"]["arguments"]
    wanted = {"at": {"x": 3, "y": 1.0}, "all": [{"y": 2.0}, None, {"x": 2**60}], "free": {"k": None, "n": 1.0}}
    assert same(read, wanted)
    assert said(outcome) >= {"null_padding_removed:at.z,all[0].x,all[2].y", "float_to_int:at.x,all[2].x", "ambiguous_null:free.k"}


def test_text_is_not_arrows_work() -> None:
    """What stands in JSON text has not been in a struct: its nulls and fractions are the caller's own."""
    text = '{"days": null, "n": 3.0}'
    row = {"messages": [GO, calling(a_call("f", text))], "tools": [a_tool("f", {"days": {"type": "integer"}, "n": {"type": "integer"}})]}
    outcome = converted(row, "openai", "openai")
    assert row_of(outcome)["messages"][1]["tool_calls"][0]["function"]["arguments"] == text
    assert outcome.repairs == []


def test_an_order_that_a_struct_may_have_made_is_named() -> None:
    tools = [a_tool("f", {"z": {"type": "integer"}, "a": {"type": "integer"}})]
    for arguments, named in (({"a": 1, "q": None, "z": 2}, True), ({"z": 1, "q": None, "a": 2}, False), ({"a": 1, "z": 2}, False)):
        outcome = converted({"messages": [GO, calling(a_call("f", arguments))], "tools": tools}, "openai", "openai")
        assert any(loss.code == "key_order_lost" for loss in outcome.losses) == named


def test_wide_structs_are_mended_in_linear_time() -> None:
    names = [f"p{number}" for number in range(100_000)]
    tool = a_tool("f", {name: {"type": ["string", "null"]} for name in names})
    tool["function"]["parameters"]["required"] = names
    with at_most(20):
        outcome = converted(
            {"messages": [GO, calling(a_call("f", {**dict.fromkeys(names), "q": None}))], "tools": [tool]}, "openai", "openai"
        )
    assert "null_padding_removed:q" in said(outcome)


def test_one_name_twice_among_many_takes_linear_time() -> None:
    arguments = "{" + ", ".join(f'"p{number}": 1' for number in [*range(100_000), 99_999]) + "}"
    with at_most(20):
        outcome = converted({"messages": [GO, calling(a_call("f", arguments))]}, "openai", "openai")
    assert [(loss.code, loss.detail) for loss in outcome.losses] == [("content_lost", "p99999")]


def test_padded_tools() -> None:
    properties = {
        "default": None,
        "enum": {"type": "integer", "enum": [1.0, None], "default": 3.0, "minimum": 0.0, "description": None},
        "x": {"type": "string", "const": None, "maxLength": 5.0, "anyOf": [{"type": "string", "format": None}]},
        "y": {"type": "number", "default": {"a": None}, "minimum": 0.0},
    }
    outcome = converted({"messages": [GO], "tools": [a_tool("f", properties) | {"strict": None}]}, "openai", "openai")
    assert row_of(outcome)["tools"] == [
        a_tool("f", {
            "enum": {"type": "integer", "enum": [1, None], "default": 3, "minimum": 0},
            "x": {"type": "string", "const": None, "maxLength": 5, "anyOf": [{"type": "string"}]},
            "y": {"type": "number", "default": {"a": None}, "minimum": 0.0},
        })
    ]  # fmt: skip
    assert {repair.code for repair in outcome.repairs} == {"null_padding_removed", "float_to_int", "ambiguous_null"}
    own = [a_tool("f", {"x": {"type": "string", "default": None}, "y": {"type": "integer", "maximum": 3.0}})]
    assert converted({"messages": [GO], "tools": own}, "openai", "openai") == Outcome({"messages": [GO], "tools": own})


def test_results_are_put_in_order_only_if_it_is_sure() -> None:
    def outcome(call_ids: str, result_ids: str, target: str = "sharegpt") -> Outcome:
        calls = [a_call("f", {}, call_id) for call_id in call_ids]
        results = [{"role": "tool", "tool_call_id": call_id, "content": call_id} for call_id in result_ids]
        return converted({"messages": [GO, calling(*calls), *results]}, "openai", target)

    assert "tool_results_reordered" in said(outcome("abc", "cab"))
    assert row_of(outcome("abc", "cab"))["conversations"][2] == {"from": "observation", "value": '["a", "b", "c"]'}
    for call_ids, result_ids in (("abc", "cb"), ("aab", "baa"), ("ab", "bx"), ("ab", "baa")):
        assert "tool_results_reordered" not in said(outcome(call_ids, result_ids))
        assert {"tool_result_order", "orphan_tool_result", "duplicate_tool_call_id"} & said(outcome(call_ids, result_ids))
    assert said(outcome("abc", "cab", "openai")) == set(), "ids pair them there"
