"""What a rendered text cannot give back, as far as it is the same for every format.

Rules of this module:

* the wire tells which of the caller's texts stand where; a text that holds one of the format's markers cannot be told from
  a real one when it is read back as text;
* an argument is lost in its type if reading its text by the tool's schema gives another value;
* what is empty and what is missing read back alike, where the text does not tell them apart;
* tool results pair with calls by position alone where the text carries no ids.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import Loss
from .grammar import QUOTES
from .jsontext import is_readable
from .messages import NAMESPACE, Call, Tool, function_of
from .values import NO_SIGNATURE, Signature, read_value, signature_of
from .wire import ARGUMENT, ARGUMENT_NAME, ARGUMENTS, CALL, CONTENT, CONTROL, REASONING, RESULT, SYSTEM, USER, Wire

if TYPE_CHECKING:
    from .format import Format

_PATHS = {SYSTEM: "content", USER: "content", CONTENT: "content", RESULT: "content", REASONING: "reasoning_content"}

_GONE = frozenset(("message_dropped", "message_rendered_empty", "content_lost"))  #: whose message has no more to lose


def losses_of(
    format: "Format", wire: Wire, messages: Sequence[dict[str, Any]], tools: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
) -> list[Loss]:
    """All losses of a rendering, those of the format's own first."""
    own = list(format.losses(list(messages), tools, options))
    return [
        *own,
        *_message_losses(format, messages, own),
        *_declaration_losses(format, tools),
        *_option_losses(format, options),
        *_text_losses(format, wire),
        *_argument_losses(format, wire, messages, tools),
        *pairing_losses(messages),
        *name_losses(messages, result_names=format.result_names),
        *_ending_losses(messages, options),
        *_quoting_losses(format, wire),
    ]


def _message_losses(format: "Format", messages: Iterable[Mapping[str, Any]], own: Iterable[Loss]) -> Iterator[Loss]:
    """What the messages that leave a trace lose of their parts."""
    gone = {loss.path.removesuffix(".content") for loss in own if loss.code in _GONE}
    for index, message in enumerate(messages):
        if f"messages[{index}]" not in gone:
            yield from _null_losses(format, message, index)
        if format.kind_of is not None:
            yield from _media_losses(message, index, format.kind_of)


def _declaration_losses(format: "Format", tools: Iterable[Tool]) -> Iterator[Loss]:
    """What a declaration in TypeScript does not show of a tool."""
    if format.declared is None:
        return
    from .typescript import declared

    for index, tool in enumerate(tools):
        path, own = f"tools[{index}]", function_of(tool)
        function = format.declared(own)
        if function != own or tool != {"type": "function", "function": own}:
            yield Loss("schema_dropped", path, str(index))
        if function is own:
            inner = f"{path}.function" if "function" in tool else path
            text, dropped = declared(function)
            yield from (Loss("schema_dropped", f"{inner}.{lost}", str(index)) for lost in dropped)
            if format.control_search(text):
                yield Loss("control_token_in_content", path, str(index))


def _null_losses(format: "Format", message: Mapping[str, Any], index: int) -> Iterator[Loss]:
    """Content and reasoning of a message that read back as null though they are empty, or as empty though they are null."""
    content, assistant = message.get("content"), message["role"] == "assistant"
    if not assistant:
        lost = content is None
    elif isinstance(content, str):
        lost = not content and not format.text_blocks
    else:
        lost = content is not None and not any(format.text_blocks or part.get("text") != "" for part in content)
    if lost:
        yield Loss("null_content", f"messages[{index}].content", str(index))
    if assistant and ("reasoning_content" not in message if format.empty_reasoning else message.get("reasoning_content") == ""):
        yield Loss("null_content", f"messages[{index}].reasoning_content", str(index))


def _media_losses(message: Mapping[str, Any], index: int, kind_of: Callable[[Mapping[str, Any]], str | None]) -> Iterator[Loss]:
    """Parts of a message that are more than the placeholder of their kind says."""
    content = message.get("content") or ()
    for number, part in enumerate(() if isinstance(content, str) else content):
        kind = kind_of(part)
        if kind != "text" and part != {"type": kind}:
            yield Loss("media_dropped", f"messages[{index}].content[{number}]", str(index))


def order_losses(messages: Iterable[Mapping[str, Any]], tools: Iterable[Tool]) -> Iterator[Loss]:
    """The order of keys in arguments and tools, for a format that sorts them."""
    for index, message in enumerate(messages):
        calls = message.get("tool_calls") if message["role"] == "assistant" else None
        for number, call in enumerate(calls or ()):
            path = f"messages[{index}].tool_calls[{number}].function.arguments"
            if list(call.arguments) != sorted(call.arguments):
                yield Loss("key_order_lost", path, str(index))
            for name, value in call.arguments.items():
                if not _sorted(value):
                    yield Loss("key_order_lost", f"{path}.{name}", name)
    for index, tool in enumerate(tools):
        if not _sorted(function_of(tool).get("parameters")):
            yield Loss("key_order_lost", f"tools[{index}].function.parameters", str(index))


def _option_losses(format: "Format", options: Mapping[str, Any]) -> Iterator[Loss]:
    for name, option in format.options.items():
        if option.passes_over and options[name] not in (option.values or ()):
            yield Loss("option_ignored", f"options.{name}", name)


def _ending_losses(messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> Iterator[Loss]:
    if options.get("add_generation_prompt") and messages and messages[-1]["role"] == "assistant":
        yield Loss("ends_with_assistant", f"messages[{len(messages) - 1}]")


def _text_losses(format: "Format", wire: Wire) -> Iterator[Loss]:
    """Markers in the caller's own text."""
    controls = format.control_search
    message, call, name = -1, -1, ""
    for kind, text in zip(wire[::2], wire[1::2], strict=True):
        if isinstance(kind, int):
            if kind >= 0:
                message, call = kind, -1
            continue
        if kind == CALL:
            call += 1
        if kind == ARGUMENT_NAME:
            name = text
        if kind in _PATHS:
            if controls(text):
                yield Loss("control_token_in_content", f"messages[{message}].{_PATHS[kind]}", str(message))
        elif kind in (CALL, ARGUMENT_NAME, ARGUMENT):
            where = f"messages[{message}].tool_calls[{call}].function"
            if controls(text) or (kind != ARGUMENT and any(reserved in text for reserved in format.reserved_in_names)):
                if kind == CALL:
                    yield Loss("control_token_in_argument", f"{where}.name", text)
                else:
                    yield Loss("control_token_in_argument", f"{where}.arguments.{name}", name)
            if kind == CALL and text != text.strip():
                yield Loss("whitespace_trimmed", f"{where}.name", str(message))


def _argument_losses(
    format: "Format", wire: Wire, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> Iterator[Loss]:
    """Arguments whose text reads back as another value, by the tools at hand or by what the text itself shows of them."""
    called = {text for kind, text in zip(wire[::2], wire[1::2], strict=True) if kind == CALL}
    if not called:
        return
    functions = {function["name"]: function for function in map(function_of, tools)}
    called &= functions.keys()
    signatures = {name: signature_of(functions[name]) for name in called}
    shown: dict[str, Signature] = {}
    if format.declared is not None:
        from .typescript import shown as shown_of

        shown = {name: signature_of(shown_of(format.declared(functions[name]))) for name in called}
    message, call, name = -1, -1, ""
    for kind, text in zip(wire[::2], wire[1::2], strict=True):
        if isinstance(kind, int):
            if kind >= 0:
                message, call = kind, -1
        elif kind == CALL:
            call += 1
            if text.startswith(NAMESPACE) and text not in functions and text[len(NAMESPACE) :] in functions:
                yield Loss("value_type_lost", f"messages[{message}].tool_calls[{call}].function.name", text)
        elif kind == ARGUMENTS:
            path = f"messages[{message}].tool_calls[{call}].function.arguments"
            if not _finite(messages[message]["tool_calls"][call].arguments):
                yield Loss("non_finite_number", path, str(message))
            elif not is_readable(text):
                yield Loss("value_type_lost", path, str(message))
        elif kind == ARGUMENT_NAME:
            name = text
        elif kind == ARGUMENT:
            made: Call = messages[message]["tool_calls"][call]
            path = f"messages[{message}].tool_calls[{call}].function.arguments.{name}"
            value = made.arguments[name]
            if not _finite(value):
                yield Loss("non_finite_number", path, name)
            known = [found.get(made.name, NO_SIGNATURE) for found in ((signatures, shown) if shown else (signatures,))]
            backs = [read_value(text, signature.types(name))[0] for signature in known] if tools else [text]
            if not all(same(back, value) for back in backs):
                yield Loss("value_type_lost", path, name)


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal and of the same types throughout, so that 1, 1.0 and True differ."""
    pending = [(one, other)]
    while pending:
        one, other = pending.pop()
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            if list(one) != list(other):
                return False
            pending += [(one[key], other[key]) for key in one]
        elif isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
            if len(one) != len(other):
                return False
            pending += zip(one, other, strict=True)
        elif type(one) is not type(other) or one != other or (isinstance(one, float) and math.copysign(1, one) != math.copysign(1, other)):
            return False
    return True


def _within(value: Any) -> Iterator[Any]:
    """A value and all that it holds, however deep."""
    pending = [value]
    while pending:
        one = pending.pop()
        yield one
        if isinstance(one, Mapping):
            pending += one.values()
        elif isinstance(one, (list, tuple)):
            pending += one


def _finite(value: Any) -> bool:
    return type(value) is str or all(math.isfinite(one) for one in _within(value) if isinstance(one, float))


def _sorted(value: Any) -> bool:
    """Whether the keys of all objects in a value are in order."""
    return all(list(one) == sorted(one) for one in _within(value) if isinstance(one, Mapping))


def _quoting_losses(format: "Format", wire: Wire) -> Iterator[Loss]:
    """Reasoning whose end stands between two quotes of one kind, and so looks as if it were only spoken of."""
    message, last = -1, ""
    for kind, text in zip(wire[::2], wire[1::2], strict=True):
        if isinstance(kind, int):
            message = kind if kind >= 0 else message
        elif kind == REASONING:
            last = text[-1:]
        elif kind == CONTENT and last and last in QUOTES and text[:1] == last:
            yield Loss("control_token_in_content", f"messages[{message}].content", str(message))
            last = ""
        elif kind != CONTROL or text != text.strip():
            last = ""  # something, or layout, keeps them apart


def pairing_losses(messages: Sequence[Mapping[str, Any]]) -> Iterator[Loss]:
    """Results whose call only their ids tell, which no text carries."""
    dropped = False
    pending: dict[Any, int] = {}  # how often each id is still to be answered, in order
    seen: set[Any] = set()
    ordered = True
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            pending, ordered = {}, True
            for position, call in enumerate(message.get("tool_calls") or ()):
                if call.id is None:
                    continue
                pending[call.id] = pending.get(call.id, 0) + 1
                path = f"messages[{index}].tool_calls[{position}].id"
                if not dropped:
                    dropped = True
                    yield Loss("tool_call_id_dropped", path)
                if call.id in seen:
                    yield Loss("duplicate_tool_call_id", path, str(call.id))
                seen.add(call.id)
        elif message["role"] == "tool":
            call_id, path = message.get("tool_call_id"), f"messages[{index}].tool_call_id"
            if call_id is not None and not dropped:
                dropped = True
                yield Loss("tool_call_id_dropped", path)
            if call_id is None or call_id not in pending:
                yield Loss("orphan_tool_result", path, call_id)
                continue
            if ordered and next(iter(pending)) != call_id:
                ordered = False
                yield Loss("tool_result_order", path)
            pending[call_id] -= 1
            if not pending[call_id]:
                del pending[call_id]


def name_losses(messages: Sequence[Mapping[str, Any]], *, result_names: bool) -> Iterator[Loss]:
    """Names of speakers, which no text carries, and those of results that are not their call's, unless the text has them."""
    calls: dict[Any, str] | None = None
    for index, message in enumerate(messages):
        if message.get("name") is None or (result_names and message["role"] == "tool"):
            continue
        if calls is None:
            calls = {call.id: call.name for other in messages for call in other.get("tool_calls") or () if call.id is not None}
        if message["role"] != "tool" or calls.get(message.get("tool_call_id")) != message["name"]:
            yield Loss("content_dropped", f"messages[{index}].name", str(index))
