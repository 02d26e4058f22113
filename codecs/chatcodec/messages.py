"""Structured chat: messages, tool calls, tools and conversations, in the OpenAI chat shape.

Rules of this module:

* plain dicts and these models mean the same everywhere; `admit` is the one door through which both enter the library;
* at the door, for every format: null keys are absent, `reasoning_content`, `reasoning` and `thinking` are one field,
  arguments given as JSON text are decoded once, null arguments are `{}`, and where a format knows only text a list of
  text parts is joined;
* tools stay the caller's own JSON: key order and unknown keys are kept, because formats write tools out verbatim;
* checking is cheap, since it runs on every call: no model is built for a dict.

The rules at the door are those of Hugging Face transformers' `apply_chat_template`, plus the three repairs named above.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, NoReturn, TypedDict

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, field_validator, model_serializer

from .errors import nearest

Tool = Mapping[str, Any]
"""A tool as the caller gave it: `{"type": "function", "function": {"name", "description", "parameters"}}`, or flat."""


Function = Mapping[str, Any]
"""What a tool's `function` holds: `name`, `description`, `parameters`."""

#: Keys of a function or a schema that say nothing where they hold nothing.
IDLE_KEYS = frozenset(("description", "parameters", "properties", "required", "items", "enum", "examples", "nullable"))


class TextPart(TypedDict):
    """A stretch of text among content parts."""

    type: Literal["text"]
    text: str


class MediaPart(TypedDict, total=False):
    """An image, a sound or a video among content parts; further keys say where its data are."""

    type: Literal["image", "audio", "video"]


Part = TextPart | MediaPart
Content = str | list[Part] | None

NAMESPACE = "functions."  #: Harmony's, which models put before the names of tools in other formats too
REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
MESSAGE_KEYS = frozenset(("role", "content", "tool_calls", "tool_call_id", "name", *REASONING_KEYS))
TEXT_PART_TYPES = ("text", "input_text")


class FunctionCall(BaseModel):
    """The name of a tool and the arguments to call it with.  JSON text given as arguments is decoded."""

    model_config = ConfigDict(extra="allow")
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)

    @field_validator("arguments", mode="before")
    @classmethod
    def _decoded(cls, value: Any) -> Any:
        if value is None:
            return {}
        return json.loads(value) if isinstance(value, str) else value


class ToolCall(BaseModel):
    """One tool call of an assistant message."""

    model_config = ConfigDict(extra="allow")
    id: str | None = None
    type: str = "function"
    function: FunctionCall

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.function.name

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments, as Python values."""
        return self.function.arguments

    @model_serializer(mode="wrap")
    def _without_nulls(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        dumped: dict[str, Any] = handler(self)
        if dumped.get("id") is None:
            dumped.pop("id", None)
        return dumped


class Message(BaseModel):
    """One message of a conversation, in the OpenAI chat shape.

    `model_dump()` gives that shape as a dict; `model_dump(context={"arguments": "json"})` gives arguments as JSON text.
    Reasoning is read under any of its three names; `None` means that there is none, which is not the same as `""`.
    """

    model_config = ConfigDict(extra="allow")
    role: str
    content: str | list[dict[str, Any]] | None = None
    reasoning_content: str | None = Field(default=None, validation_alias=AliasChoices(*REASONING_KEYS))
    tool_calls: list[ToolCall] = Field(default_factory=list)
    tool_call_id: str | None = None
    name: str | None = None

    @field_validator("tool_calls", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return [] if value is None else value

    @model_serializer(mode="wrap")
    def _without_nulls(self, handler: SerializerFunctionWrapHandler, info: Any) -> dict[str, Any]:
        dumped: dict[str, Any] = handler(self)
        for key in ("reasoning_content", "tool_call_id", "name"):
            if dumped.get(key) is None:
                dumped.pop(key, None)
        if not dumped.get("tool_calls"):
            dumped.pop("tool_calls", None)
        elif info.context and info.context.get("arguments") == "json":
            for call in dumped["tool_calls"]:
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
        return dumped


class Conversation(BaseModel):
    """Messages, the tools they may call, and the template options that they are rendered with."""

    messages: list[Message]
    tools: list[dict[str, Any]] | None = None
    options: dict[str, Any] = Field(default_factory=dict)


_new, _put = object.__new__, object.__setattr__


def _trusted(made: Any, values: dict[str, Any], given: set[str]) -> Any:
    """A model of values that are known to be right; twice as fast as validating them."""
    _put(made, "__dict__", values)
    _put(made, "__pydantic_fields_set__", given)
    _put(made, "__pydantic_extra__", {})
    _put(made, "__pydantic_private__", None)
    return made


def assistant_message(content: Any, reasoning: str | None, calls: Iterable[tuple[str, dict[str, Any]]]) -> Message:
    """The message that a parse gives: content as text or parts, reasoning, and names and arguments of calls."""
    made = []
    for name, arguments in calls:
        function = _trusted(_new(FunctionCall), {"name": name, "arguments": arguments}, {"name", "arguments"})
        made.append(_trusted(_new(ToolCall), {"id": None, "type": "function", "function": function}, {"function"}))
    values = {
        "role": "assistant", "content": content, "reasoning_content": reasoning, "tool_calls": made, "tool_call_id": None, "name": None
    }  # fmt: skip
    message: Message = _trusted(_new(Message), values, {"role", "content", "reasoning_content", "tool_calls"})
    return message


# ------------------------------------------------------------------------------------------------------------- the door


class Call(NamedTuple):
    """A tool call at the door: checked, unwrapped, its arguments decoded."""

    id: str | None
    name: str
    arguments: dict[str, Any]


class Door(NamedTuple):
    """What a format lets in.

    `parts`: the types of content parts it knows, empty if only text.  `flat_calls`: whether a call may do without its
    `function` wrapper; `mixed_calls`: whether what `function` lacks may stand beside it, and an id within it.
    `refuse(path, code, detail)` raises the format's RenderError.
    """

    parts: frozenset[str]
    flat_calls: bool
    mixed_calls: bool
    refuse: Callable[[str, str, str], NoReturn]


#: Messages of these keys and only strings, and those with a list of calls besides, are as they should be: the quick ways in.
_TEXTUAL = frozenset(("role", "content", "reasoning_content", "tool_call_id", "name"))
_CALLING = _TEXTUAL | {"tool_calls"}
_STRING = frozenset((str,))
_STRING_OR_LIST = frozenset((str, list))


def admit(messages: Iterable[Mapping[str, Any] | Message], door: Door) -> list[dict[str, Any]]:
    """Check messages and bring them into one shape: dicts without null keys, calls as `Call`s."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        door.refuse("messages", "bad_message", f"messages must be a list, not {_kind(messages)}")
    admitted: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        if type(message) is dict and type(message.get("role")) is str:
            keys, kinds = message.keys(), [*map(type, message.values())]
            if keys <= _TEXTUAL and _STRING.issuperset(kinds):
                admitted.append(message)
                continue
            calls = message.get("tool_calls")
            if type(calls) is list and keys <= _CALLING and _STRING_OR_LIST.issuperset(kinds) and kinds.count(list) == 1:
                path = f"messages[{index}].tool_calls"
                admitted.append({**message, "tool_calls": [_call(call, path, number, door) for number, call in enumerate(calls)]})
                continue
        admitted.append(_message(message, f"messages[{index}]", door))
    return admitted


def _message(given: Any, path: str, door: Door) -> dict[str, Any]:
    if isinstance(given, Message):
        given = given.model_dump()
    if not isinstance(given, Mapping):
        door.refuse(path, "bad_message", f"a message must be an object, not {_kind(given)}")
    message = {key: value for key, value in given.items() if value is not None}
    if not message.keys() <= MESSAGE_KEYS:
        _check_keys(message, path, door)
    if type(message.get("role")) is not str:
        door.refuse(f"{path}.role", "unknown_role", f"a role must be a string, not {_kind(message.get('role'))}")
    _reasoning(message, path, door)
    content = message.get("content")
    if content is not None and type(content) is not str:
        message["content"] = _content(content, f"{path}.content", door)
    calls = message.get("tool_calls")
    if calls is not None:
        if not isinstance(calls, Sequence) or isinstance(calls, str):
            door.refuse(f"{path}.tool_calls", "bad_message", f"tool_calls must be a list, not {_kind(calls)}")
        message["tool_calls"] = [_call(call, f"{path}.tool_calls", number, door) for number, call in enumerate(calls)]
    for key in ("tool_call_id", "name"):
        if type(message.get(key, "")) is not str:
            door.refuse(f"{path}.{key}", "bad_message", f"{key} must be a string, not {_kind(message[key])}")
    return message


def _check_keys(message: dict[str, Any], path: str, door: Door) -> None:
    for key in message:
        if key not in MESSAGE_KEYS:
            hint = nearest(str(key), MESSAGE_KEYS - message.keys())
            if hint:  # other keys are a data set's own and no business of ours
                door.refuse(f"{path}.{key}", "bad_message", f"unknown key {key!r}{hint}")


def _reasoning(message: dict[str, Any], path: str, door: Door) -> None:
    found = [key for key in REASONING_KEYS if key in message]
    if not found:
        return
    reasoning = message[found[0]]
    for key in found:
        if type(message[key]) is not str:
            door.refuse(f"{path}.{key}", "content_not_string", f"reasoning must be a string, not {_kind(message[key])}")
        if message[key] != reasoning:
            door.refuse(f"{path}.{key}", "bad_message", f"{found[0]} and {key} are two different reasonings")
    for key in found[1:] if found[0] == "reasoning_content" else found:
        del message[key]
    message["reasoning_content"] = reasoning


def _content(content: Any, path: str, door: Door) -> Any:
    if not isinstance(content, Sequence) or isinstance(content, (str, bytes)):
        door.refuse(path, "content_not_string", f"content must be a string or a list of parts, not {_kind(content)}")
    for index, part in enumerate(content):
        if not isinstance(part, Mapping) or not isinstance(part.get("type", ""), str):
            door.refuse(f"{path}[{index}]", "content_not_string", f"a content part must be an object with a type, not {_kind(part)}")
    if door.parts:
        return content
    for index, part in enumerate(content):
        if part.get("type") not in TEXT_PART_TYPES:
            door.refuse(f"{path}[{index}]", "media_not_supported", f"the format knows only text, not {part.get('type')!r} parts")
        if not isinstance(part.get("text"), str):
            door.refuse(f"{path}[{index}].text", "content_not_string", f"text must be a string, not {_kind(part.get('text'))}")
    return "".join(part["text"] for part in content)


def _call(call: Any, calls: str, number: int, door: Door) -> Call:
    if type(call) is dict:  # the usual shape, without further ado
        function = call.get("function")
        if type(function) is dict and type(function.get("arguments")) is dict:
            name, call_id = function.get("name"), call.get("id")
            if type(name) is str and name and (type(call_id) is str or (call_id is None and not door.mixed_calls)):
                return Call(call_id, name, function["arguments"])
    return _odd_call(call, f"{calls}[{number}]", door)


def _odd_call(call: Any, path: str, door: Door) -> Call:
    if not isinstance(call, Mapping):
        door.refuse(path, "bad_message", f"a tool call must be an object, not {_kind(call)}")
    function, where = call.get("function"), f"{path}.function"
    if function is None and door.flat_calls:
        function, where = call, path
    if not isinstance(function, Mapping):
        door.refuse(where, "bad_message", f"function must be an object, not {_kind(function)}")
    if door.mixed_calls:
        call, function = {**function, **call}, {**call, **function}
    name, call_id = function.get("name"), call.get("id")
    if not isinstance(name, str) or not name:
        door.refuse(f"{where}.name", "missing_tool_name", f"a tool name must be a string that is not empty, not {name!r}")
    if call_id is not None and not isinstance(call_id, str):
        door.refuse(f"{path}.id", "bad_message", f"a call id must be a string, not {_kind(call_id)}")
    return Call(call_id, name, _arguments(function.get("arguments"), f"{where}.arguments", name, door))


def _arguments(given: Any, path: str, name: str, door: Door) -> dict[str, Any]:
    if given is None:
        return {}
    arguments = given
    if isinstance(given, str) and given:
        try:
            arguments = json.loads(given)
        except (ValueError, RecursionError) as error:
            door.refuse(path, "arguments_not_json", f"the arguments of {name!r} are no JSON: {error}")
    if not isinstance(arguments, Mapping):
        door.refuse(path, "arguments_not_mapping", f"the arguments of {name!r} must be an object, not {_kind(arguments)}")
    return dict(arguments)


def _kind(value: Any) -> str:
    """How an error names a value that does not belong."""
    return "nothing" if value is None else type(value).__name__


def function_of(tool: Tool) -> Function:
    """The function of a tool, whether it is wrapped or flat."""
    function = tool.get("function", tool)
    return function if type(function) is dict or isinstance(function, Mapping) else {}
