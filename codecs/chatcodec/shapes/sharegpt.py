"""The ShareGPT shape: a column of turns with `from` and `value`, tools as JSON text, as LLaMA-Factory documents it.

A turn comes from `system`, `human`, `gpt`, `function_call` (its value is the call as JSON, or a list of calls) or
`observation` (what a tool gave back).

Rules of this module:

* turns alternate in that shape, so an assistant turn with calls is one `function_call`, which has no room for content, and
  the results of several calls are one `observation`: a JSON list of their texts;
* written are the names above; read are those that data sets use besides, and a system prompt in a column of its own.

Source: LLaMA-Factory, data/README.md, "Sharegpt Format".
"""

import json
from collections.abc import Mapping
from typing import Any

from ..errors import Loss, nearest
from ..jsontext import dumps
from .chat import Chat, Columns, Row, RowError, Written, column, json_text, read_call, read_document, read_tools
from .repairs import Known, known
from .turns import Numbering, call_json, own_keys, prepare, text_of

SYSTEM_COLUMN = "system"
CALLS = "function_call"
#: What turns come from, as data sets have it.
ROLES = {
    "system": "system", "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant",
    "model": "assistant", CALLS: CALLS, "tool_call": CALLS, "observation": "tool", "tool": "tool", "tool_response": "tool",
    "function_response": "tool",
}  # fmt: skip
WRITTEN = {"system": "system", "user": "human", "assistant": "gpt", "tool": "observation"}
_TAKEN = frozenset(("role", "content", "tool_calls", "tool_call_id"))


def read_sharegpt(row: Row, columns: Columns) -> Chat:
    """A row with a column of turns."""
    chat = Chat([], own_ids=False, used={columns.conversations})
    turns = column(row, columns.conversations, "bad_message")
    read_tools(row, columns.tools, chat)
    tools, numbering = known(chat.tools), Numbering()
    for index, turn in enumerate(turns):
        role, value, more = split_turn(turn, f"conversations[{index}]")
        _add(chat, role, value, more, f"conversations[{index}].value", tools, numbering)
    system = row.get(SYSTEM_COLUMN)
    if isinstance(system, str) and system and not (chat.messages and chat.messages[0]["role"] == "system"):
        chat.messages.insert(0, {"role": "system", "content": system})
        chat.used.add(SYSTEM_COLUMN)
    return chat


def split_turn(turn: Any, path: str) -> tuple[str, Any, dict[str, Any]]:
    """The role, the value and the other keys of a turn."""
    if not isinstance(turn, Mapping):
        raise RowError("bad_message", path, f"a turn must be an object, not {type(turn).__name__}")
    speaker, text = ("from", "value") if "from" in turn else ("role", "content")
    role = turn.get(speaker)
    if not isinstance(role, str) or role not in ROLES:
        hint = nearest(role, ROLES) if isinstance(role, str) else ""
        raise RowError("unknown_role", f"{path}.{speaker}", f"no turn comes from {role!r:.60}{hint}; there are {', '.join(ROLES)}")
    more = {key: value for key, value in turn.items() if key not in (speaker, text) and value is not None} if len(turn) > 2 else {}
    if not more.get("tool_calls", True):
        del more["tool_calls"]  # an empty list of calls says nothing
    if clash := next((key for key in more if key in _TAKEN or not isinstance(key, str)), None):
        raise RowError("bad_message", f"{path}.{clash}", f"a turn with {speaker!r} has no {clash!r}")
    return ROLES[role], turn.get(text), more


def _add(chat: Chat, role: str, value: Any, more: dict[str, Any], path: str, tools: Known, numbering: Numbering) -> None:
    if role == CALLS:
        calls = [read_call(call, place, tools, chat, as_text=isinstance(value, str)) for call, place in _given_calls(value, path, chat)]
        for call in calls:
            call.pop("id", None)
        chat.messages.append({"role": "assistant", "content": None, "tool_calls": numbering.called(calls), **more})
        return
    if value is not None and not isinstance(value, str):
        raise RowError("content_not_string", path, f"the value of a turn must be a string, not {type(value).__name__}")
    if role == "tool":
        for text in _several(value, numbering.unanswered) or [value or ""]:
            chat.messages.append({"role": "tool", "tool_call_id": numbering.answered(), "content": text, **more})
        return
    if role == "assistant":
        numbering.called([])
    chat.messages.append({"role": role, "content": value, **more})


def _given_calls(value: Any, path: str, chat: Chat) -> list[tuple[Any, str]]:
    if isinstance(value, str):
        try:
            value = read_document(value, path, chat.losses)
        except (ValueError, RecursionError) as error:
            raise RowError("arguments_not_json", path, f"a function call that is no JSON: {error}") from None
    calls = value if isinstance(value, (list, tuple)) else [value]
    if not calls:
        raise RowError("bad_message", path, "a turn of function calls without a call")
    return [(call, f"{path}[{number}]" if len(calls) > 1 else path) for number, call in enumerate(calls)]


def _several(value: Any, calls: int) -> list[str] | None:
    """The results of several calls in one turn: a JSON list of as many texts."""
    if calls < 2 or not isinstance(value, str) or not value.startswith("["):
        return None
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return found if len(found) == calls and all(isinstance(text, str) for text in found) and dumps(found) == value else None


def write_sharegpt(chat: Chat, columns: Columns, options: Mapping[str, Any]) -> Written:
    """A column of turns, and the tools as JSON text."""
    prepare(chat)
    turns: list[dict[str, Any]] = []
    index = 0
    while index < len(chat.messages):
        message = chat.messages[index]
        calls = message.get("tool_calls", ())
        turns.append(_turn(message, index, chat))
        index += 1
        if len(calls) > 1:
            index = _results(index, calls, turns, chat)
    written: Written = {columns.conversations: turns}
    if chat.tools or columns.tools in chat.used:
        written[columns.tools] = json_text(chat.tools, columns.tools) if chat.tools else None
    if chat.options:
        written[columns.options] = chat.options
    return written


def _turn(message: Mapping[str, Any], index: int, chat: Chat) -> dict[str, Any]:
    calls = message.get("tool_calls")
    text = text_of(message, index, chat)
    if calls:
        if text:
            chat.losses.append(Loss("content_dropped", f"messages[{index}].content", str(index)))
        written = [call_json(call, f"messages[{index}].tool_calls[{number}]", chat) for number, call in enumerate(calls)]
        turn = {"from": CALLS, "value": f"[{', '.join(written)}]" if len(written) > 1 else written[0]}
    else:
        turn = {"from": WRITTEN[message["role"]], "value": text}
    for key, value in own_keys(message).items():
        if key in turn:
            chat.losses.append(Loss("content_dropped", f"messages[{index}].{key}", str(index)))
        else:
            turn[key] = value
    return turn


def _results(start: int, calls: Any, turns: list[dict[str, Any]], chat: Chat) -> int:
    """The results of several calls as one turn, if there are as many; gives the index of what comes after them."""
    end = start
    while end < len(chat.messages) and chat.messages[end]["role"] == "tool":
        end += 1
    results = chat.messages[start:end]
    named = [call["function"]["name"] for call in calls]
    if len(results) == len(calls) and all(
        isinstance(result.get("content"), str) and own_keys(result) in ({}, {"name": name})
        for result, name in zip(results, named, strict=True)
    ):
        turns.append({"from": WRITTEN["tool"], "value": json_text([result["content"] for result in results], "messages")})
        return end
    if results and _several(results[0].get("content"), len(calls)):  # which would be read as all of them
        chat.losses.append(Loss("control_token_in_content", f"messages[{start}].content", str(start)))
    return start
