"""Rows from one shape to another: the cases from public bug reports, and the laws for every shape and format at once.

1. `openai` to any shape and back gives the same conversation but for the losses named.
2. Wire text to `openai` and back is the same text.
3. What Arrow does to arguments is undone or named, key by key.
4. Junk gives a refusal, and other columns are never touched.
"""

import copy
import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import chatcodec
import strategies as make
from chatcodec import errors
from chatcodec.convert import REFUSALS, SHAPES, Columns, Outcome, convert_row, plan
from chatcodec.losses import same
from conformance import Case, all_cases
from limits import at_most
from test_laws import FORGED, GONE, _unexplained_tools, _within, unexplained

ALL = (*SHAPES, *chatcodec.list_formats())
OBJECTS = {"arguments": "object"}
HERMES_PIECES = (
    "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<tools>", "</tools>", "<tools>[]</tools>", "\n",
    '<tools>{"type": "function", "function": {"name": "f"}}</tools>', '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
    "<tool_response>x</tool_response>", '["a", "b"]', '["", "", ""]',
)  # fmt: skip

shapes = pytest.mark.parametrize("shape", ALL)
formats = pytest.mark.parametrize("name", chatcodec.list_formats())


def _converted(row: Any, source: str, target: str, **options: Any) -> Outcome:
    outcome = convert_row(row, plan(source, target, options=options))
    assert (outcome.row is None) != (outcome.refusal is None)
    if outcome.refusal is not None:
        assert outcome.refusal.code in errors.REFUSALS | REFUSALS
        assert outcome.refusal.reason
    assert {loss.code for loss in outcome.losses} <= errors.LOSSES
    assert {repair.code for repair in outcome.repairs} <= errors.REPAIRS
    return outcome


def _row(outcome: Outcome) -> dict[str, Any]:
    assert outcome.row is not None, outcome.refusal
    return outcome.row


def _said(outcome: Outcome) -> set[str]:
    found: list[Any] = [*outcome.losses, *outcome.repairs]
    return {one.code for one in found} | {f"{one.code}:{one.detail}" for one in found}


def _call(name: str, arguments: Any, call_id: str = "c0") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _calling(*calls: dict[str, Any], content: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def _tool(name: str, properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties, **more}}}


GO = {"role": "user", "content": "go"}

# --------------------------------------------------------------------------------------------------------------- cases


def _case_id(case: Case) -> str:
    return f"{case['format']}-{case['id']}"


def _case_row(case: Case) -> dict[str, Any]:
    """A case's row.  Where it gives a completion, that is read first, and its turn joins the messages before."""
    given = case["input"]
    messages = given.get("messages")
    if messages is None:
        fmt = chatcodec.get_format(given["from"])
        prompt = fmt.render(given["messages_before"], tools=given.get("tools"), add_generation_prompt=True)
        reply = fmt.parse(given["text"], tools=given.get("tools"), prompt=prompt, policy="strict" if given.get("tools") else "recover")
        messages = [*given["messages_before"], reply.message.model_dump()]
    return {"messages": messages, "tools": given.get("tools")}


def _comparable(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages without ids, and with list content joined: what a case's own text tells."""
    found = []
    for message in copy.deepcopy(messages):
        message.pop("tool_call_id", None)
        if isinstance(message.get("content"), list):
            message["content"] = "".join(part["text"] for part in message["content"])
        message["tool_calls"] = [
            (call["function"]["name"], list(call["function"]["arguments"].items())) for call in message.pop("tool_calls", ())
        ]
        found.append(message)
    return found


@pytest.mark.parametrize("case", all_cases("convert"), ids=_case_id)
def test_case(case: Case) -> None:
    row, expect, options = _case_row(case), case["expect"], case["input"].get("kwargs", {})
    outcome = _converted(row, "openai", case["input"]["to"], **options)
    if "error" in expect:
        assert outcome.refusal is not None
        assert outcome.refusal.code == expect["error"], case["why"]
        assert outcome.refusal.path == "messages[1].tool_calls[0].function.arguments"
        return
    assert _row(outcome)["text"] == expect["text"], case["why"]
    assert set(expect.get("diagnostics", ())) <= _said(outcome), case["why"]
    back = _comparable(_row(_converted(row, "openai", "openai", **OBJECTS))["messages"])
    if "tool_results_reordered" not in _said(outcome):  # only where the order pairs them are results put in order
        assert back == _comparable(expect["messages"]), case["why"]


def test_there_are_cases_for_every_format() -> None:
    assert {case["format"] for case in all_cases("convert")} == set(chatcodec.list_formats())


# -------------------------------------------------------------------------------------------------------- 1. there and back


@st.composite
def rows(draw: st.DrawFn, pieces: make.Pieces) -> dict[str, Any]:
    """A row in the OpenAI shape: tools, a conversation, sometimes results out of order, names and further keys."""
    tools = draw(make.tools(pieces))
    messages: list[dict[str, Any]] = draw(make.conversations(tools, pieces))
    if draw(st.booleans()):
        messages = _shuffled(draw, messages)
    for message in messages:
        if draw(st.integers(0, 9)) == 0:
            message["weight"] = draw(st.sampled_from((0, 1, 0.5)))
        if message["role"] != "system" and draw(st.integers(0, 5)) == 0:
            message["name"] = draw(st.sampled_from(("bob", "f", "search")))
    row: dict[str, Any] = {"id": 7, "messages": messages, "label": None}
    if len(tools) or draw(st.booleans()):
        row["tools"] = json.dumps(tools) if draw(st.booleans()) else tools
    return row


def _shuffled(draw: st.DrawFn, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results of a turn in any order, and sometimes one short."""
    made: list[dict[str, Any]] = []
    group: list[dict[str, Any]] = []
    for message in [*messages, {"role": ""}]:
        if message["role"] == "tool":
            group.append(message)
            continue
        if group:
            group = draw(st.permutations(group))
            made += group if draw(st.integers(0, 4)) else group[1:]
            group = []
        if message["role"]:
            made.append(message)
    return made


def _pairs(messages: list[dict[str, Any]]) -> Iterator[tuple[int, str | None, str | None]]:
    """For each result: the call of its turn that it belongs to, the tool's name as far as it is known, its content."""
    calls: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "assistant":
            calls = message.get("tool_calls") or []
        if message["role"] == "tool":
            ids = [call.get("id") for call in calls]
            place = ids.index(message.get("tool_call_id")) if message.get("tool_call_id") in ids else -1
            yield place, message.get("name") or (calls[place]["function"]["name"] if place >= 0 else None), str(message["content"])


@shapes
@given(data=st.data())
def test_there_and_back(shape: str, data: st.DataObject) -> None:
    pieces = make.pieces_of(shape, whole=data.draw(st.integers(0, 3)) == 0) if shape in chatcodec.list_formats() else HERMES_PIECES
    row = data.draw(rows(pieces))
    before = copy.deepcopy(row)
    there = _converted(row, "openai", shape)
    assert row == before, "a row was changed in place"
    if there.refusal is not None:
        assert there.refusal.code in make.REFUSED_TEXTS
        assume(False)
    assert _row(there)["id"] == 7
    assert "label" in _row(there)
    losses = there.losses
    forged = any(loss.code in FORGED for loss in losses)
    back = _converted(there.row, shape, "openai", **OBJECTS)
    if back.refusal is not None:
        assert forged, back.refusal
        return
    if any(loss.code in FORGED and not loss.path.startswith("messages[") for loss in losses):
        return
    plain = _row(_converted(row, "openai", "openai", **OBJECTS))
    given_messages, read = _reordered(plain["messages"], there), _row(back)["messages"]
    if not forged:
        assert _unexplained_tools(plain.get("tools") or [], _row(back).get("tools"), losses) == []
        assert _row(back)["label"] is None
    gone = {loss.path for loss in losses if loss.code in GONE}
    kept = [(index, message) for index, message in enumerate(given_messages) if f"messages[{index}]" not in gone]
    for (index, message), other in zip(kept, read, strict=False):
        path = f"messages[{index}]"
        if message["role"] == "tool" and any(loss.code == "tool_result_order" for loss in losses):
            continue  # which result is whose is what is lost
        assert unexplained(message, other, losses, path, exactly=shape in SHAPES) == []
        if any(loss.code in FORGED for loss in _within(losses, path)):
            return
        for key in ("weight", "name"):
            if message["role"] != "tool" or key == "weight":
                assert other.get(key) == message.get(key) or any(loss.path == f"{path}.{key}" for loss in losses)
    assert len(kept) == len(read)
    odd = {"tool_result_order", "orphan_tool_result", "duplicate_tool_call_id"} | GONE
    if not any(loss.code in odd or (loss.path.startswith("messages[") and loss.path.endswith(".name")) for loss in losses):
        contents = any(loss.code in ("content_lost", "content_dropped", "whitespace_trimmed", "null_content") for loss in losses)
        assert [pair[: 2 if contents else 3] for pair in _pairs(_joined(given_messages))] == [
            pair[: 2 if contents else 3] for pair in _pairs(_joined(read))
        ]


def _reordered(messages: list[dict[str, Any]], there: Outcome) -> list[dict[str, Any]]:
    """The messages with those results in order that a repair names."""
    messages = list(messages)
    for repair in there.repairs:
        if repair.code == "tool_results_reordered":
            start = int(repair.path[len("messages[") : -1])
            wanted = [call["id"] for call in messages[start - 1]["tool_calls"]]
            group = messages[start : start + len(wanted)]
            messages[start : start + len(wanted)] = sorted(group, key=lambda result: wanted.index(result["tool_call_id"]))
    return messages


def _joined(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        message | {"content": "".join(part["text"] for part in message["content"])} if isinstance(message.get("content"), list) else message
        for message in messages
    ]


@shapes
def test_a_plain_conversation_comes_back_as_it_was(shape: str) -> None:
    """The laws forgive what a loss names, so that nothing may be named without need."""
    messages = [
        {"role": "system", "content": "Be brief."}, GO,
        _calling(_call("f", {"x": "a"}, "call_0"), _call("f", {"x": "b"}, "call_1")) | {"reasoning_content": "Hm."},
        {"role": "tool", "tool_call_id": "call_0", "content": "1"}, {"role": "tool", "tool_call_id": "call_1", "content": "2"},
        {"role": "assistant", "content": "Done.", "reasoning_content": "So."},
    ]  # fmt: skip
    parameters = {"properties": {"x": {"type": "string"}}, "type": "object"}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    there = _converted({"messages": messages, "tools": tools}, "openai", shape)
    allowed = {"openai": set(), "sharegpt": {"reasoning_dropped"}, "hermes": {"reasoning_dropped"}}.get(shape, set())
    assert {loss.code for loss in there.losses} - allowed <= ({"tool_call_id_dropped"} if shape != "openai" else set())
    assert there.repairs == []
    read = _row(_converted(there.row, shape, "openai", **OBJECTS))
    for message in messages if allowed else ():
        message.pop("reasoning_content", None)
    for message in read["messages"]:
        assert message.pop("name", "f") == "f", "some texts tell the tool of a result"
    assert read == {"messages": messages, "tools": tools}


# ------------------------------------------------------------------------------------------------------- 2. wire and back


@formats
@given(data=st.data(), shape=st.sampled_from(SHAPES))
def test_wire_text_and_back(name: str, data: st.DataObject, shape: str) -> None:
    fmt = chatcodec.get_format(name)
    pieces = make.pieces_of(name)
    tools = data.draw(make.tools(pieces))
    chosen = data.draw(make.options(fmt, without=()))
    text = make.rendered(fmt, data.draw(make.conversations(tools, pieces)), tools=tools or None, **chosen).text
    there = _converted({"text": text, "n": 1}, name, shape)
    if there.refusal is not None:
        assert there.refusal.code == "not_a_prompt"
        return
    kept = json.loads(json.dumps(there.row))  # a row goes through a file
    back = _converted(kept, shape, name)
    if not there.losses and not there.repairs and not any(loss.code in FORGED or loss.code == "option_ignored" for loss in back.losses):
        assert _row(back) == {"text": text, "n": 1}


@formats
@pytest.mark.parametrize("other", chatcodec.list_formats())
def test_from_format_to_format(name: str, other: str) -> None:
    tools = [_tool("f", {"x": {"type": "integer"}})]
    messages = [GO, _calling(_call("f", {"x": 3})), {"role": "tool", "tool_call_id": "c0", "content": "1"}]
    text = chatcodec.get_format(name).render(messages, tools=tools, add_generation_prompt=True).text
    found = _converted({"text": text}, name, other)
    wanted = chatcodec.get_format(name).parse_prompt(text)
    again = chatcodec.get_format(other).render(wanted.messages, tools=wanted.tools, add_generation_prompt=True)
    assert _row(found) == {"text": again.text}
    assert "tool_call_id_dropped" not in _said(found), "the text had no ids that could be lost"


def test_options_of_another_format_are_named() -> None:
    text = chatcodec.get_format("qwen3_5").render([GO], add_generation_prompt=True, enable_thinking=False).text
    row = _row(_converted({"text": text}, "qwen3_5", "openai"))
    assert row["options"] == {"add_generation_prompt": True, "enable_thinking": False}
    assert "option_ignored:enable_thinking" in _said(_converted(row, "openai", "inkling"))
    assert _row(_converted(row, "openai", "qwen3_5"))["text"] == text
    theirs = {"messages": [GO], "options": ["A", "B"]}
    assert _row(_converted(theirs, "openai", "qwen3_5"))["options"] == ["A", "B"]


# --------------------------------------------------------------------------------------------------------- 3. Arrow's work


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
    calls = [_call(tool["function"]["name"], data.draw(make.arguments(tool, fit=True)), f"c{index}") for index, tool in enumerate(tools)]
    struct: Any = {}
    for call in calls:
        struct = _union(struct, call["function"]["arguments"])
    padded = [_call(call["function"]["name"], _padded(call["function"]["arguments"], struct), call["id"]) for call in calls]
    outcome = _converted({"messages": [GO, _calling(*padded)], "tools": tools}, "openai", "openai", **OBJECTS)
    found = _row(outcome)["messages"][1]["tool_calls"]
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
        _tool("f", {"a": {"type": "string"}, "b": {"type": "string"}, "n": {"type": ["integer", "null"]}, "any": {}}, required=["b", "n"]),
        _tool("g", {"other": {"type": "string"}}),
        _tool("free", {}, additionalProperties=True),
        {"type": "function", "function": {"name": "bare"}},
    ]
    nulls = {"a": None, "b": None, "n": None, "any": None, "other": None}
    made = {name: _converted({"messages": [GO, _calling(_call(name, nulls))], "tools": tools}, "openai", "openai", **OBJECTS) for name in
            ("f", "g", "free", "bare", "unknown")}  # fmt: skip
    kept = {name: list(_row(outcome)["messages"][1]["tool_calls"][0]["function"]["arguments"]) for name, outcome in made.items()}
    assert kept == {"f": ["b", "n", "any"], "g": [], "free": list(nulls), "bare": [], "unknown": list(nulls)}
    assert "null_padding_removed:a,other" in _said(made["f"])
    assert "ambiguous_null:b,any" in _said(made["f"]), "n has to be there and may be null: that null is the caller's own"
    assert "ambiguous_null:a,b,n,any,other" in _said(made["unknown"])


def test_structs_within_arguments_and_numbers() -> None:
    point = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "number"}}}
    properties = {"at": {"$ref": "#/$defs/point"}, "all": {"type": "array", "items": {"anyOf": [point, {"type": "null"}]}}}
    tools = [_tool("f", {**properties, "free": {"type": "object"}}, **{"$defs": {"point": point}})]
    given_arguments = {
        "at": {"x": 3.0, "y": 1.0, "z": None},
        "all": [{"x": None, "y": 2.0}, None, {"x": 2.0**60, "y": None}],
        "free": {"k": None, "n": 1.0},
    }
    outcome = _converted({"messages": [GO, _calling(_call("f", given_arguments))], "tools": tools}, "openai", "openai", **OBJECTS)
    read = _row(outcome)["messages"][1]["tool_calls"][0]["function"]["arguments"]
    wanted = {"at": {"x": 3, "y": 1.0}, "all": [{"y": 2.0}, None, {"x": 2**60}], "free": {"k": None, "n": 1.0}}
    assert same(read, wanted)
    assert _said(outcome) >= {"null_padding_removed:at.z,all[0].x,all[2].y", "float_to_int:at.x,all[2].x", "ambiguous_null:free.k"}


def test_text_is_not_arrows_work() -> None:
    """What stands in JSON text has not been in a struct: its nulls and fractions are the caller's own."""
    text = '{"days": null, "n": 3.0}'
    row = {"messages": [GO, _calling(_call("f", text))], "tools": [_tool("f", {"days": {"type": "integer"}, "n": {"type": "integer"}})]}
    outcome = _converted(row, "openai", "openai")
    assert _row(outcome)["messages"][1]["tool_calls"][0]["function"]["arguments"] == text
    assert outcome.repairs == []


def test_an_order_that_a_struct_may_have_made_is_named() -> None:
    tools = [_tool("f", {"z": {"type": "integer"}, "a": {"type": "integer"}})]
    for arguments, named in (({"a": 1, "q": None, "z": 2}, True), ({"z": 1, "q": None, "a": 2}, False), ({"a": 1, "z": 2}, False)):
        outcome = _converted({"messages": [GO, _calling(_call("f", arguments))], "tools": tools}, "openai", "openai")
        assert any(loss.code == "key_order_lost" for loss in outcome.losses) == named


def test_wide_structs_are_mended_in_linear_time() -> None:
    names = [f"p{number}" for number in range(100_000)]
    tool = _tool("f", {name: {"type": ["string", "null"]} for name in names})
    tool["function"]["parameters"]["required"] = names
    with at_most(20):
        outcome = _converted(
            {"messages": [GO, _calling(_call("f", {**dict.fromkeys(names), "q": None}))], "tools": [tool]}, "openai", "openai"
        )
    assert "null_padding_removed:q" in _said(outcome)


def test_one_name_twice_among_many_takes_linear_time() -> None:
    arguments = "{" + ", ".join(f'"p{number}": 1' for number in [*range(100_000), 99_999]) + "}"
    with at_most(20):
        outcome = _converted({"messages": [GO, _calling(_call("f", arguments))]}, "openai", "openai")
    assert [(loss.code, loss.detail) for loss in outcome.losses] == [("content_lost", "p99999")]


def test_padded_tools() -> None:
    properties = {
        "default": None,
        "enum": {"type": "integer", "enum": [1.0, None], "default": 3.0, "minimum": 0.0, "description": None},
        "x": {"type": "string", "const": None, "maxLength": 5.0, "anyOf": [{"type": "string", "format": None}]},
        "y": {"type": "number", "default": {"a": None}, "minimum": 0.0},
    }
    outcome = _converted({"messages": [GO], "tools": [_tool("f", properties) | {"strict": None}]}, "openai", "openai")
    assert _row(outcome)["tools"] == [
        _tool("f", {
            "enum": {"type": "integer", "enum": [1, None], "default": 3, "minimum": 0},
            "x": {"type": "string", "const": None, "maxLength": 5, "anyOf": [{"type": "string"}]},
            "y": {"type": "number", "default": {"a": None}, "minimum": 0.0},
        })
    ]  # fmt: skip
    assert {repair.code for repair in outcome.repairs} == {"null_padding_removed", "float_to_int", "ambiguous_null"}
    own = [_tool("f", {"x": {"type": "string", "default": None}, "y": {"type": "integer", "maximum": 3.0}})]
    assert _converted({"messages": [GO], "tools": own}, "openai", "openai") == Outcome({"messages": [GO], "tools": own})


def test_results_are_put_in_order_only_if_it_is_sure() -> None:
    def outcome(call_ids: str, result_ids: str, target: str = "sharegpt") -> Outcome:
        calls = [_call("f", {}, call_id) for call_id in call_ids]
        results = [{"role": "tool", "tool_call_id": call_id, "content": call_id} for call_id in result_ids]
        return _converted({"messages": [GO, _calling(*calls), *results]}, "openai", target)

    assert "tool_results_reordered" in _said(outcome("abc", "cab"))
    assert _row(outcome("abc", "cab"))["conversations"][2] == {"from": "observation", "value": '["a", "b", "c"]'}
    for call_ids, result_ids in (("abc", "cb"), ("aab", "baa"), ("ab", "bx"), ("ab", "baa")):
        assert "tool_results_reordered" not in _said(outcome(call_ids, result_ids))
        assert {"tool_result_order", "orphan_tool_result", "duplicate_tool_call_id"} & _said(outcome(call_ids, result_ids))
    assert _said(outcome("abc", "cab", "openai")) == set(), "ids pair them there"


# ------------------------------------------------------------------------------------------------- what others have written


def test_arguments_as_others_write_them() -> None:
    def read(arguments: Any) -> Outcome:
        return _converted({"messages": [GO, _calling(_call("f", arguments))]}, "openai", "qwen3_5")

    plain = _row(read({"x": "a"}))
    twice = json.dumps(json.dumps({"x": "a"}))
    assert _row(read('{"x": "a"}')) == _row(read(twice)) == plain
    assert "arguments_decoded:twice" in _said(read(twice))
    assert _row(read(None)) == _row(read("{}")) == _row(read({}))
    assert "content_lost" in _said(read('{"x": 1, "x": 2}')), "a member that comes twice"
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
    row = {"messages": [GO, _calling(_call("f", {"x": 1}))], "tools": [_tool("f", {"x": {"type": "integer"}})]}
    wanted = _row(_converted(row, "openai", "qwen3_5"))
    for messages in (row["messages"], json.dumps(row["messages"])):
        for tools in (row["tools"], json.dumps(row["tools"]), [json.dumps(tool) for tool in row["tools"]]):
            assert _row(_converted({"messages": messages, "tools": tools}, "openai", "qwen3_5")) == wanted


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
    read = _row(_converted(row, "sharegpt", "openai"))
    assert read["tools"] == [tool]
    assert [message["role"] for message in read["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert read["messages"][2]["tool_calls"] == [_call("get_news", '{"about": "tech"}', "call_0")]
    assert read["messages"][3] == {"role": "tool", "tool_call_id": "call_0", "content": '{"headline": "none"}'}
    again = _row(_converted(read, "openai", "sharegpt"))
    assert again["conversations"] == [{"from": "system", "value": "Be brief."}, *row["conversations"]]
    assert json.loads(again["tools"]) == [tool]


def test_what_sharegpt_cannot_hold_is_named() -> None:
    image = {"type": "image_url", "image_url": {"url": "a.png"}, "text": None}
    calls = _calling(_call("f", {}, "a"), _call("f", {"x": float("nan")}, "b"), content="Let me look.")
    messages = [{"role": "user", "content": [{"type": "text", "text": "See "}, image]}, calls | {"reasoning_content": "Hm."}]
    outcome = _converted({"messages": messages}, "openai", "sharegpt")
    assert _row(outcome)["conversations"][0]["value"] == "See <image>"
    wanted = {"media_dropped", "content_dropped", "reasoning_dropped", "tool_call_id_dropped", "non_finite_number"}
    assert {loss.code for loss in outcome.losses} == wanted


def test_hermes_as_others_write_it() -> None:
    tool = _tool("f", {"x": {"type": "string"}})
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
    outcome = _converted({"conversations": turns, "tools": json.dumps([tool])}, "hermes", "openai", **OBJECTS)
    assert _row(outcome)["tools"] == [tool]
    assert _row(outcome)["messages"] == [
        {"role": "system", "content": "You are given functions within <tools></tools> tags.\n Call them in <tool_call> tags."},
        GO,
        _calling(_call("f", {"x": "it's"}, "call_0"), _call("f", {}, "call_1"), content="Well."),
        {"role": "tool", "tool_call_id": "call_0", "content": "1"},
        {"role": "tool", "tool_call_id": "call_1", "content": "2"},
    ]
    assert "arguments_decoded:a Python literal" in _said(outcome)
    plain = [GO, _calling() | {"content": calls}, {"role": "tool", "tool_call_id": "x", "content": "1"}]
    named = _converted({"messages": plain}, "hermes", "openai", **OBJECTS)
    assert "tool_call_id_dropped" in _said(named), "calls in tags have no ids that it could name"
    assert _row(named)["messages"][2] == {"role": "tool", "tool_call_id": "call_0", "content": "1"}
    for broken in ("<tool_call>\n{'name': f()}\n</tool_call>", '<tool_call>\n{"name": "f"', '<tool_call>{"name": "f"} {}</tool_call>'):
        refusal = _converted({"messages": [GO, {"role": "assistant", "content": broken}]}, "hermes", "openai").refusal
        assert refusal is not None
        assert (refusal.code, refusal.path) == ("arguments_not_json", "messages[1]")


# ------------------------------------------------------------------------------------------------------- 4. junk, columns


@shapes
@given(data=st.data())
def test_junk_gives_a_refusal(shape: str, data: st.DataObject) -> None:
    row: Any = data.draw(rows(HERMES_PIECES))
    if shape != "openai":
        made = _converted(row, "openai", shape)
        assume(made.row is not None)
        row = made.row
    junk = data.draw(make.damaged(row))
    _converted(junk, shape, data.draw(st.sampled_from(ALL)))


@shapes
def test_bottomless_rows_give_a_refusal(shape: str) -> None:
    deep: Any = None
    for _ in range(100_000):
        deep = [deep]
    text = "[" * 100_000 + "]" * 100_000
    for value in (deep, text):
        for row in (
            {"messages": value}, {"messages": [{"role": "user", "content": value}]}, {"conversations": value, "text": value},
            {"messages": [GO, _calling(_call("f", {"x": value}))], "tools": [_tool("f", {"x": {"default": value}})]},
            {"messages": [{"role": "system", "content": f"<tools>{text}</tools>"}, {"role": "assistant", "content": f"<tool_call>{text}"}]},
            {"conversations": [{"from": "function_call", "value": value}], "tools": value},
        ):  # fmt: skip
            _converted(row, shape, "openai")
            _converted(row, "openai", shape)


def test_columns() -> None:
    columns = Columns(messages="chat", text="prompt", tools="functions")
    row = {"a": 1, "functions": None, "chat": [GO], "b": [2]}
    there = convert_row(row, plan("openai", "qwen3_5", columns=columns))
    assert list(_row(there)) == ["a", "prompt", "b"], "the new column stands where the first of the old ones stood"
    assert _row(there)["b"] is row["b"]
    assert _row(convert_row(_row(there), plan("qwen3_5", "openai", columns=columns)))["chat"] == [GO]
    taken = convert_row({"messages": [GO], "text": "mine"}, plan("openai", "qwen3_5")).refusal
    assert taken is not None
    assert (taken.code, taken.path) == ("column_taken", "text")
    assert _row(convert_row({"messages": [GO], "text": None}, plan("openai", "qwen3_5")))["text"]
    missing = convert_row({"mesages": [GO]}, plan("openai", "qwen3_5")).refusal
    assert missing is not None
    assert missing.code == "missing_column"
    assert "did you mean 'mesages'" in missing.reason


def test_plans() -> None:
    made = plan("openai", "qwen3_5", options={"add_generation_prompt": True}, columns=Columns(text="t"))
    assert pickle.loads(pickle.dumps(made)) == made
    assert convert_row({"messages": [GO]}, pickle.loads(pickle.dumps(made))) == convert_row({"messages": [GO]}, made)
    for source, target, options, words in (
        ("opnai", "qwen3_5", {}, "did you mean 'openai'"),
        ("openai", "qwen", {}, "did you mean 'qwen3_5'"),
        ("openai", "qwen3_5", {"enable_thinkin": True}, "did you mean 'enable_thinking'"),
        ("openai", "qwen3_5", {"enable_thinking": "no"}, "enable_thinking must be bool"),
        ("qwen3_5", "openai", {"argument": "json"}, "did you mean 'arguments'"),
        ("qwen3_5", "openai", {"arguments": "text"}, "'json' or 'object'"),
        ("qwen3_5", "hermes", {"arguments": "json"}, "there are none"),
    ):
        with pytest.raises(chatcodec.CodecError, match=words):
            plan(source, target, options=options)
