"""Rows from one shape to another: the cases from public bug reports, and the laws for every shape and format at once.

1. `openai` to any shape and back gives the same conversation but for the losses named.
2. Wire text to `openai` and back is the same text.
3. Junk gives a refusal, and other columns are never touched.
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
from chatcodec.convert import SHAPES, Columns, Outcome, convert_row, plan
from conformance import Case, all_cases
from converting import GO, OBJECTS, a_call, a_tool, calling, converted, row_of, said
from test_laws import FORGED, GONE, _unexplained_tools, _within, unexplained

ALL = (*SHAPES, *chatcodec.list_formats())
HERMES_PIECES = (
    "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<tools>", "</tools>", "<tools>[]</tools>", "\n",
    '<tools>{"type": "function", "function": {"name": "f"}}</tools>', '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
    "<tool_response>x</tool_response>", '["a", "b"]', '["", "", ""]',
)  # fmt: skip

shapes = pytest.mark.parametrize("shape", ALL)
formats = pytest.mark.parametrize("name", chatcodec.list_formats())

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
    outcome = converted(row, "openai", case["input"]["to"], **options)
    if "error" in expect:
        assert outcome.refusal is not None
        assert outcome.refusal.code == expect["error"], case["why"]
        assert outcome.refusal.path == "messages[1].tool_calls[0].function.arguments"
        return
    assert row_of(outcome)["text"] == expect["text"], case["why"]
    assert set(expect.get("diagnostics", ())) <= said(outcome), case["why"]
    back = _comparable(row_of(converted(row, "openai", "openai", **OBJECTS))["messages"])
    if "tool_results_reordered" not in said(outcome):  # only where the order pairs them are results put in order
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
    there = converted(row, "openai", shape)
    assert row == before, "a row was changed in place"
    if there.refusal is not None:
        assert there.refusal.code in make.REFUSED_TEXTS
        assume(False)
    assert row_of(there)["id"] == 7
    assert "label" in row_of(there)
    losses = there.losses
    forged = any(loss.code in FORGED for loss in losses)
    back = converted(there.row, shape, "openai", **OBJECTS)
    if back.refusal is not None:
        assert forged, back.refusal
        return
    if any(loss.code in FORGED and not loss.path.startswith("messages[") for loss in losses):
        return
    plain = row_of(converted(row, "openai", "openai", **OBJECTS))
    given_messages, read = _reordered(plain["messages"], there), row_of(back)["messages"]
    if not forged:
        assert _unexplained_tools(plain.get("tools") or [], row_of(back).get("tools"), losses) == []
        assert row_of(back)["label"] is None
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
        calling(a_call("f", {"x": "a"}, "call_0"), a_call("f", {"x": "b"}, "call_1")) | {"reasoning_content": "Hm."},
        {"role": "tool", "tool_call_id": "call_0", "content": "1"}, {"role": "tool", "tool_call_id": "call_1", "content": "2"},
        {"role": "assistant", "content": "Done.", "reasoning_content": "So."},
    ]  # fmt: skip
    parameters = {"properties": {"x": {"type": "string"}}, "type": "object"}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    there = converted({"messages": messages, "tools": tools}, "openai", shape)
    allowed = {"openai": set(), "sharegpt": {"reasoning_dropped"}, "hermes": {"reasoning_dropped"}}.get(shape, set())
    assert {loss.code for loss in there.losses} - allowed <= ({"tool_call_id_dropped"} if shape != "openai" else set())
    assert there.repairs == []
    read = row_of(converted(there.row, shape, "openai", **OBJECTS))
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
    there = converted({"text": text, "n": 1}, name, shape)
    if there.refusal is not None:
        assert there.refusal.code == "not_a_prompt"
        return
    kept = json.loads(json.dumps(there.row))  # a row goes through a file
    back = converted(kept, shape, name)
    if not there.losses and not there.repairs and not any(loss.code in FORGED or loss.code == "option_ignored" for loss in back.losses):
        assert row_of(back) == {"text": text, "n": 1}


@formats
@pytest.mark.parametrize("other", chatcodec.list_formats())
def test_from_format_to_format(name: str, other: str) -> None:
    tools = [a_tool("f", {"x": {"type": "integer"}})]
    messages = [GO, calling(a_call("f", {"x": 3})), {"role": "tool", "tool_call_id": "c0", "content": "1"}]
    text = chatcodec.get_format(name).render(messages, tools=tools, add_generation_prompt=True).text
    found = converted({"text": text}, name, other)
    wanted = chatcodec.get_format(name).parse_prompt(text)
    again = chatcodec.get_format(other).render(wanted.messages, tools=wanted.tools, add_generation_prompt=True)
    assert row_of(found) == {"text": again.text}
    assert "tool_call_id_dropped" not in said(found), "the text had no ids that could be lost"


def test_options_of_another_format_are_named() -> None:
    text = chatcodec.get_format("qwen3_5").render([GO], add_generation_prompt=True, enable_thinking=False).text
    row = row_of(converted({"text": text}, "qwen3_5", "openai"))
    assert row["options"] == {"add_generation_prompt": True, "enable_thinking": False}
    assert "option_ignored:enable_thinking" in said(converted(row, "openai", "inkling"))
    assert row_of(converted(row, "openai", "qwen3_5"))["text"] == text
    theirs = {"messages": [GO], "options": ["A", "B"]}
    assert row_of(converted(theirs, "openai", "qwen3_5"))["options"] == ["A", "B"]


# ------------------------------------------------------------------------------------------------------- 3. junk, columns


@shapes
@given(data=st.data())
def test_junk_gives_a_refusal(shape: str, data: st.DataObject) -> None:
    row: Any = data.draw(rows(HERMES_PIECES))
    if shape != "openai":
        made = converted(row, "openai", shape)
        assume(made.row is not None)
        row = made.row
    junk = data.draw(make.damaged(row))
    converted(junk, shape, data.draw(st.sampled_from(ALL)))


@shapes
def test_bottomless_rows_give_a_refusal(shape: str) -> None:
    deep: Any = None
    for _ in range(100_000):
        deep = [deep]
    text = "[" * 100_000 + "]" * 100_000
    for value in (deep, text):
        for row in (
            {"messages": value}, {"messages": [{"role": "user", "content": value}]}, {"conversations": value, "text": value},
            {"messages": [GO, calling(a_call("f", {"x": value}))], "tools": [a_tool("f", {"x": {"default": value}})]},
            {"messages": [{"role": "system", "content": f"<tools>{text}</tools>"}, {"role": "assistant", "content": f"<tool_call>{text}"}]},
            {"conversations": [{"from": "function_call", "value": value}], "tools": value},
        ):  # fmt: skip
            converted(row, shape, "openai")
            converted(row, "openai", shape)


def test_columns() -> None:
    columns = Columns(messages="chat", text="prompt", tools="functions")
    row = {"a": 1, "functions": None, "chat": [GO], "b": [2]}
    there = convert_row(row, plan("openai", "qwen3_5", columns=columns))
    assert list(row_of(there)) == ["a", "prompt", "b"], "the new column stands where the first of the old ones stood"
    assert row_of(there)["b"] is row["b"]
    assert row_of(convert_row(row_of(there), plan("qwen3_5", "openai", columns=columns)))["chat"] == [GO]
    taken = convert_row({"messages": [GO], "text": "mine"}, plan("openai", "qwen3_5")).refusal
    assert taken is not None
    assert (taken.code, taken.path) == ("column_taken", "text")
    assert row_of(convert_row({"messages": [GO], "text": None}, plan("openai", "qwen3_5")))["text"]
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
