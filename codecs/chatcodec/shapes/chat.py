"""The shapes of conversations in rows: what they have in common, and the OpenAI chat shape.

Rules of this module:

* a `Chat` is what every shape is read to and written from: messages in the OpenAI shape, without null keys, arguments as
  objects; tools; template options.  Messages of the row are never changed in place;
* a shape reads from the columns that are its own, and says which they were, so that all others can be kept;
* what cannot be read raises `RowError` with the place; `convert` makes a refusal of it.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ..errors import Loss, nearest
from ..jsontext import dumps, half_at
from ..messages import MESSAGE_KEYS, REASONING_KEYS, TEXT_PART_TYPES, Door, admit
from .repairs import Known, Repair, in_call_order, known, may_be_damaged, mend_arguments, mend_tools

_PLAIN = frozenset(("role", "content", "reasoning_content", "tool_call_id", "name"))
_STRING = frozenset((str,))


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of the columns that conversations are read from and written to."""

    messages: str = "messages"
    tools: str = "tools"
    text: str = "text"
    conversations: str = "conversations"
    options: str = "options"


class RowError(Exception):
    """A row that cannot be converted: which code, where, and why."""

    def __init__(self, code: str, path: str, reason: str) -> None:
        super().__init__(code, path, reason)
        self.code, self.path, self.reason = code, path, reason


@dataclass(slots=True)
class Chat:
    """A conversation between two shapes.  `own_ids`: its ids are the data's own, and not made while reading."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    own_ids: bool = True
    used: set[str] = field(default_factory=set)  #: the columns that it was read from
    losses: list[Loss] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)


Row = Mapping[str, Any]
Written = dict[str, Any]

# -------------------------------------------------------------------------------------------------------------- columns


def decoded(value: Any, path: str, code: str) -> Any:
    """A column's value; JSON text is decoded."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            raise RowError(code, path, f"{path} is no JSON: {error}") from None
    return value


def column(row: Row, name: str, code: str) -> Any:
    """The value of a column that has to be there, as a list; JSON text is decoded."""
    if row.get(name) is None:
        there = ", ".join(map(repr, row)) or "none"
        raise RowError("missing_column", name, f"the row has no column {name!r}{nearest(name, map(str, row))}; it has {there}")
    value = decoded(row[name], name, code)
    if not isinstance(value, (list, tuple)):
        raise RowError(code, name, f"{name} must be a list, not {type(value).__name__}")
    return value


def read_tools(row: Row, name: str, chat: Chat) -> None:
    """The tools of a row: a list, or JSON text of one, or a list of JSON texts."""
    given = row.get(name)
    chat.used.add(name)
    if given is None or given == "":
        return
    tools = decoded(given, name, "bad_tool")
    if not isinstance(tools, (list, tuple)):
        raise RowError("bad_tool", name, f"{name} must be a list of tools, not {type(tools).__name__}")
    tools = [decoded(tool, f"{name}[{index}]", "bad_tool") if isinstance(tool, str) else tool for index, tool in enumerate(tools)]
    check_tools(tools, name)
    chat.tools = tools if isinstance(given, str) else mend_tools(tools, name, chat.repairs)


def check_tools(tools: Sequence[Any], path: str) -> None:
    """Refuse what is no tool."""
    for index, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise RowError("bad_tool", f"{path}[{index}]", f"a tool must be an object, not {type(tool).__name__}")
        function = tool.get("function", tool)
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
            raise RowError("missing_tool_name", f"{path}[{index}]", "a tool must have a function with a name")


def json_text(value: Any, path: str, losses: list[Loss] | None = None) -> str:
    """JSON text of a value, as UTF-8 can hold it.  NaN and infinity are written as Python does, and named as losses."""
    try:
        text = dumps(value)
    except (ValueError, TypeError, RecursionError) as error:
        raise RowError("arguments_not_json", path, f"a value that JSON cannot hold: {error}") from None
    if losses is not None and ("NaN" in text or "Infinity" in text) and not _finite(text):
        losses.append(Loss("non_finite_number", path))
    return text if half_at(text) is None else json.dumps(value)  # only an escape can say half of a surrogate pair


def _finite(text: str) -> bool:
    found: list[str] = []
    json.loads(text, parse_constant=found.append)
    return not found


# ---------------------------------------------------------------------------------------------------- the OpenAI shape


def read_openai(row: Row, columns: Columns) -> Chat:
    """A row with a column of messages and one of tools."""
    chat = Chat([], used={columns.messages})
    given = column(row, columns.messages, "bad_message")
    read_tools(row, columns.tools, chat)
    tools: Known | None = None
    for index, message in enumerate(given):
        if type(message) is dict and type(message.get("role")) is str:
            if message.keys() <= _PLAIN and _STRING.issuperset(map(type, message.values())):
                chat.messages.append(message)
                continue
        if tools is None:
            tools = known(chat.tools)
        chat.messages.append(_message(message, f"messages[{index}]", tools, chat))
    return chat


def _message(given: Any, path: str, tools: Known, chat: Chat) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise RowError("bad_message", path, f"a message must be an object, not {type(given).__name__}")
    message = {key: value for key, value in given.items() if value is not None}
    if not message.keys() <= MESSAGE_KEYS:
        _check_keys(message, path)
    if not isinstance(message.get("role"), str):
        raise RowError("unknown_role", f"{path}.role", f"a role must be a string, not {type(message.get('role')).__name__}")
    calls = message.pop("tool_calls", None)
    if isinstance(message.get("content"), (list, tuple)):
        message["content"] = [_without_nulls(part) for part in message["content"]]
    admit([message], _door(path))  # its checks are ours; what it makes of the message is for renderers
    _reasoning(message)
    if calls is not None:
        found = decoded(calls, f"{path}.tool_calls", "bad_message")
        if not isinstance(found, (list, tuple)):
            raise RowError("bad_message", f"{path}.tool_calls", f"tool_calls must be a list, not {type(found).__name__}")
        if found:
            message["tool_calls"] = [
                read_call(call, f"{path}.tool_calls[{number}]", tools, chat, as_text=isinstance(calls, str))
                for number, call in enumerate(found)
            ]
    return message


def _check_keys(message: Mapping[str, Any], path: str) -> None:
    if "function_call" in message:
        raise RowError("bad_message", f"{path}.function_call", "function_call is OpenAI's old way to call; write tool_calls")
    for key in message:
        if not isinstance(key, str):
            raise RowError("bad_message", path, f"a key must be a string, not {key!r:.60}")
        if key not in MESSAGE_KEYS and (hint := nearest(key, MESSAGE_KEYS - message.keys())):
            raise RowError("bad_message", f"{path}.{key}", f"unknown key {key!r:.60}{hint}")


def _door(path: str) -> Door:
    def refuse(where: str, code: str, detail: str) -> NoReturn:
        raise RowError(code, where.replace("messages[0]", path, 1), detail)

    return Door(frozenset(("text",)), True, True, refuse)


def _reasoning(message: dict[str, Any]) -> None:
    """The reasoning under one name, where the first of its names stood."""
    found = [key for key in message if key in REASONING_KEYS]
    if found and found != ["reasoning_content"]:
        renamed = [("reasoning_content" if key == found[0] else key, value) for key, value in message.items() if key not in found[1:]]
        message.clear()
        message.update(renamed)


def _without_nulls(part: Any) -> Any:
    """A content part without the keys of the other kinds of parts."""
    return {key: _without_nulls(value) for key, value in part.items() if value is not None} if isinstance(part, Mapping) else part


def read_call(call: Any, path: str, tools: Known, chat: Chat, *, as_text: bool = False) -> dict[str, Any]:
    """A tool call with its arguments as an object; flat ones are wrapped.  `as_text`: it stood in JSON text."""
    if not isinstance(call, Mapping):
        raise RowError("bad_message", path, f"a tool call must be an object, not {type(call).__name__}")
    call = {key: value for key, value in call.items() if value is not None}
    function = call.get("function")
    if function is None:
        function = {key: call.pop(key) for key in ("name", "arguments") if key in call}
    if not isinstance(function, Mapping):
        raise RowError("bad_message", f"{path}.function", f"function must be an object, not {type(function).__name__}")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise RowError("missing_tool_name", f"{path}.function.name", f"a tool name must be a string that is not empty, not {name!r:.60}")
    if not isinstance(call.get("id", ""), str):
        raise RowError("bad_message", f"{path}.id", f"a call id must be a string, not {type(call['id']).__name__}")
    where = f"{path}.function.arguments"
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = read_arguments(arguments, name, where, chat)
    elif arguments is None:
        arguments = {}
    elif not isinstance(arguments, Mapping):
        raise _no_mapping(arguments, name, where)
    elif not as_text and may_be_damaged(arguments):
        arguments = mend_arguments(arguments, name, tools, where, chat.repairs, chat.losses)
    head = {"id": call["id"]} if "id" in call else {}
    more = {key: value for key, value in call.items() if key not in ("id", "type", "function")}
    kept = {key: value for key, value in function.items() if key not in ("name", "arguments") and value is not None}
    return {**head, "type": call.get("type", "function"), "function": {"name": name, "arguments": dict(arguments), **kept}, **more}


def read_arguments(text: str, name: str, path: str, chat: Chat) -> dict[str, Any]:
    """Arguments given as JSON text, decoded; twice where they had been encoded twice."""
    try:
        value = read_document(text, path, chat.losses)
    except (ValueError, RecursionError) as error:
        raise RowError("arguments_not_json", path, f"the arguments of {name!r} are no JSON: {error}") from None
    detail = None
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):  # else it is just a string
            value, detail = read_document(value, path, chat.losses), "twice"
    if value is not None and not isinstance(value, dict):
        raise _no_mapping(value, name, path)
    chat.repairs.append(Repair("arguments_decoded", path, detail))
    return value or {}


def read_document(text: str, path: str, losses: list[Loss]) -> Any:
    """The value of a JSON text.  A member that comes twice counts as it is written last, and the other is named."""
    try:
        return _ONCE(text)
    except _TwiceError as error:
        losses.append(Loss("content_lost", path, str(error)))
        return json.loads(text)


class _TwiceError(Exception):
    """A member comes twice; not a ValueError, which says that the text is no JSON."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = Counter(name for name, _ in pairs)
        raise _TwiceError(next(name for name, times in names.items() if times > 1))
    return made


_ONCE = json.JSONDecoder(object_pairs_hook=_members).decode


def _no_mapping(value: Any, name: str, path: str) -> RowError:
    return RowError("arguments_not_mapping", path, f"the arguments of {name!r} must be an object, not {type(value).__name__}")


def write_openai(chat: Chat, columns: Columns, options: Mapping[str, Any]) -> Written:
    """Messages as OpenAI has them: content always there, arguments as JSON text unless the option asks for objects."""
    as_text = options.get("arguments", "json") == "json"
    messages = []
    for index, message in enumerate(chat.messages):
        if "content" not in message:
            message = {"role": message["role"], "content": None, **message}
        if as_text and "tool_calls" in message:
            where = f"messages[{index}].tool_calls"
            calls = [_as_text(call, f"{where}[{number}].function.arguments", chat) for number, call in enumerate(message["tool_calls"])]
            message = {**message, "tool_calls": calls}
        messages.append(message)
    if as_text:  # decoded and encoded again: nothing came of it, unless it had been encoded twice
        chat.repairs = [repair for repair in chat.repairs if repair.code != "arguments_decoded" or repair.detail]
    written: Written = {columns.messages: messages}
    if chat.tools or columns.tools in chat.used:
        written[columns.tools] = chat.tools
    if chat.options:
        written[columns.options] = chat.options
    return written


def _as_text(call: Mapping[str, Any], path: str, chat: Chat) -> dict[str, Any]:
    function = call["function"]
    return {**call, "function": {**function, "arguments": json_text(function["arguments"], path, chat.losses)}}


# ------------------------------------------------------------------------------- towards shapes that know less than OpenAI's


def joined_parts(chat: Chat, path: str, *, blocks: bool = False) -> None:
    """Content that is a list of texts and nothing else becomes text; `blocks`: unless the target keeps several apart."""
    for index, message in enumerate(chat.messages):
        content = message.get("content")
        apart = blocks and message["role"] != "tool" and isinstance(content, list) and len(content) > 1  # a result is one text
        if isinstance(content, list) and not apart and all(is_text(part) for part in content):
            chat.messages[index] = {**message, "content": "".join(part["text"] for part in content)}
            chat.repairs.append(Repair("content_parts_joined", f"{path}[{index}].content"))


def is_text(part: Mapping[str, Any]) -> bool:
    """Whether a content part is text."""
    return part.get("type") in TEXT_PART_TYPES and isinstance(part.get("text"), str)


def ordered_results(chat: Chat, path: str) -> None:
    """Put tool results in the order of their calls."""
    chat.messages = in_call_order(chat.messages, path, chat.repairs)
