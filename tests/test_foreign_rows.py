"""Rows as others write them: arguments and columns as JSON text, ShareGPT as LLaMA-Factory documents it, Hermes."""

import json
from typing import Any

from chatcodec.convert import Outcome
from converting import GO, OBJECTS, a_call, a_tool, calling, converted, row_of, said


def test_arguments_as_others_write_them() -> None:
    def read(arguments: Any) -> Outcome:
        return converted({"messages": [GO, calling(a_call("f", arguments))]}, "openai", "qwen3_5")

    plain = row_of(read({"x": "a"}))
    twice = json.dumps(json.dumps({"x": "a"}))
    assert row_of(read('{"x": "a"}')) == row_of(read(twice)) == plain
    assert "arguments_decoded:twice" in said(read(twice))
    assert row_of(read(None)) == row_of(read("{}")) == row_of(read({}))
    assert "content_lost" in said(read('{"x": 1, "x": 2}')), "a member that comes twice"
    for wrong, code in (
        ("", "arguments_not_json"),
        ("[1]", "arguments_not_mapping"),
        ('"x"', "arguments_not_mapping"),
        ([1], "arguments_not_mapping"),
    ):
        refusal = read(wrong).refusal
        assert refusal is not None
        assert (refusal.code, refusal.path) == (code, "messages[1].tool_calls[0].function.arguments")


def test_columns_as_json_text() -> None:
    row = {"messages": [GO, calling(a_call("f", {"x": 1}))], "tools": [a_tool("f", {"x": {"type": "integer"}})]}
    wanted = row_of(converted(row, "openai", "qwen3_5"))
    for messages in (row["messages"], json.dumps(row["messages"])):
        for tools in (row["tools"], json.dumps(row["tools"]), [json.dumps(tool) for tool in row["tools"]]):
            assert row_of(converted({"messages": messages, "tools": tools}, "openai", "qwen3_5")) == wanted


def test_sharegpt_as_llama_factory_documents_it() -> None:
    tool = {"name": "get_news", "description": "", "parameters": {"type": "object", "properties": {"about": {"type": "string"}}}}
    row = {
        "conversations": [
            {"from": "human", "value": "News?"},
            {"from": "function_call", "value": '{"name": "get_news", "arguments": {"about": "tech"}}'},
            {"from": "observation", "value": '{"headline": "none"}'},
            {"from": "gpt", "value": "None."},
        ],
        "system": "Be brief.",
        "tools": json.dumps([tool]),
    }
    read = row_of(converted(row, "sharegpt", "openai"))
    assert read["tools"] == [tool]
    assert [message["role"] for message in read["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert read["messages"][2]["tool_calls"] == [a_call("get_news", '{"about": "tech"}', "call_0")]
    assert read["messages"][3] == {"role": "tool", "tool_call_id": "call_0", "content": '{"headline": "none"}'}
    again = row_of(converted(read, "openai", "sharegpt"))
    assert again["conversations"] == [{"from": "system", "value": "Be brief."}, *row["conversations"]]
    assert json.loads(again["tools"]) == [tool]


def test_what_sharegpt_cannot_hold_is_named() -> None:
    image = {"type": "image_url", "image_url": {"url": "a.png"}, "text": None}
    calls = calling(a_call("f", {}, "a"), a_call("f", {"x": float("nan")}, "b"), content="Let me look.")
    messages = [{"role": "user", "content": [{"type": "text", "text": "See "}, image]}, calls | {"reasoning_content": "Hm."}]
    outcome = converted({"messages": messages}, "openai", "sharegpt")
    assert row_of(outcome)["conversations"][0]["value"] == "See <image>"
    wanted = {"media_dropped", "content_dropped", "reasoning_dropped", "tool_call_id_dropped", "non_finite_number"}
    assert {loss.code for loss in outcome.losses} == wanted


def test_hermes_as_others_write_it() -> None:
    tool = a_tool("f", {"x": {"type": "string"}})
    prompt = f"You are given functions within <tools></tools> tags.\n<tools>[{json.dumps(tool)}]</tools> Call them in <tool_call> tags."
    calls = (
        "Well.\n<tool_call>\n{'name': 'f', 'arguments': {'x': \"it's\"}}\n</tool_call>\n"
        '<tool_call>{"arguments": {}, "name": "f"}</tool_call>\n'
    )
    turns = [
        {"from": "system", "value": prompt},
        {"from": "human", "value": "go"},
        {"from": "gpt", "value": calls},
        {"from": "tool", "value": "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>\n"},
    ]  # fmt: skip
    outcome = converted({"conversations": turns, "tools": json.dumps([tool])}, "hermes", "openai", **OBJECTS)
    assert row_of(outcome)["tools"] == [tool]
    assert row_of(outcome)["messages"] == [
        {"role": "system", "content": "You are given functions within <tools></tools> tags.\n Call them in <tool_call> tags."},
        GO,
        calling(a_call("f", {"x": "it's"}, "call_0"), a_call("f", {}, "call_1"), content="Well."),
        {"role": "tool", "tool_call_id": "call_0", "content": "1"},
        {"role": "tool", "tool_call_id": "call_1", "content": "2"},
    ]
    assert "arguments_decoded:a Python literal" in said(outcome)
    plain = [GO, calling() | {"content": calls}, {"role": "tool", "tool_call_id": "x", "content": "1"}]
    named = converted({"messages": plain}, "hermes", "openai", **OBJECTS)
    assert "tool_call_id_dropped" in said(named), "calls in tags have no ids that it could name"
    assert row_of(named)["messages"][2] == {"role": "tool", "tool_call_id": "call_0", "content": "1"}
    for broken in ("<tool_call>\n{'name': f()}\n</tool_call>", '<tool_call>\n{"name": "f"', '<tool_call>{"name": "f"} {}</tool_call>'):
        refusal = converted({"messages": [GO, {"role": "assistant", "content": broken}]}, "hermes", "openai").refusal
        assert refusal is not None
        assert (refusal.code, refusal.path) == ("arguments_not_json", "messages[1]")
