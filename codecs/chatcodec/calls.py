"""Lexemes of calls to calls: the part of the assembler that reads names, arguments and JSON bodies.

The functions are handlers of the machine (see `HANDLERS`); the rules are those of `assembler`.
"""

import json
from collections import Counter
from typing import Any

from .assembler import MANY, Assembler, OpenCall, compact
from .events import ArgumentsDelta, ToolCallDropped, ToolCallEnd, ToolCallStart
from .grammar import CALL_RULES
from .jsonstream import ARGUMENTS_KEYS, CallScanner, cut_arguments
from .jsontext import dumps, escaped, quoted, read_json, read_json_mended
from .reply import PartialCall, Segment
from .sink import Handlers
from .values import STRING, guess_value, read_value, signature_of


def _open(sink: Assembler, start: int) -> OpenCall:
    """The open call; a new one if there is none."""
    call = sink.call
    if call is None:
        sink.called = True
        if sink.text is not None:
            sink.end_content(beside_call=True)
        call = sink.call = OpenCall(sink.index, start)
    return call


def add_call_name(sink: Assembler, text: str, start: int, end: int) -> None:
    """More of a call's name."""
    call = sink.call
    if call is None:
        call = _open(sink, start)
    if not call.name_parts:
        call.start = start
    call.name_parts.append(text)


def start_call(sink: Assembler, call: OpenCall, told: str | None = None, *, early: bool = False) -> None:
    """The name is final, as written or as `told`: the call starts, unless it is broken.

    A call whose body is still to come starts `early`: what is odd about its name is told when it is known to be a call.
    The body that told it is JSON, which needs no signature.
    """
    written = told
    if written is None:
        written = "".join(call.name_parts)
        call.name_parts = [written]
    call.name = name = written.strip()
    known = None
    if sink.tools is not None and (known := sink.known_name(name)) is not None and told is None:
        call.signature = signature_of(sink.tools[known])
    if not name:
        call.broken = True
    if call.broken:
        return
    if sink.tools is not None:
        if known != name and not early:
            sink.diagnose("unknown_tool" if known is None else "recipient_namespace", call.start, call.start + len(written), name)
        call.name = name = known or name
    if not call.started:
        sink.index = call.index + 1
        call.started = True
        if sink.events is not None:
            sink.events.append(ToolCallStart(call.index, name))


def add_arg_name(sink: Assembler, text: str, start: int, end: int) -> None:
    """More of an argument's name."""
    call = sink.call or _open(sink, start)
    if call.name is None:
        start_call(sink, call)
    call.key_parts.append(text)


def _begin_value(sink: Assembler, call: OpenCall, start: int) -> str:
    """The argument's name is final; it is this."""
    if call.name is None:
        start_call(sink, call)
    parts = call.key_parts
    call.key = key = parts[0] if len(parts) == 1 else "".join(parts)
    call.key_parts = []
    call.value_start = call.value_end = start
    if sink.tools is None:
        call.types = None if sink.infer_types else STRING
    else:
        call.types = call.signature.types(key)
    if sink.events is not None:
        call.held = ""
        call.streaming = not call.broken and call.types == STRING
        if call.streaming:
            sink.events.append(ArgumentsDelta(call.index, _prefix(call, key) + '"'))
    return key


def _prefix(call: OpenCall, key: str) -> str:
    return f"{', ' if call.arguments else '{'}{quoted(key)}: "


def _send(sink: Assembler, call: OpenCall, text: str) -> None:
    if text and sink.events is not None:
        sink.events.append(ArgumentsDelta(call.index, text))


def add_arg_value(sink: Assembler, text: str, start: int, end: int) -> None:
    """More of an argument's value."""
    call = sink.call or _open(sink, start)
    if call.key is None:
        _begin_value(sink, call, start)
    call.value.append(text)
    if len(call.value) > MANY:
        compact(call.value)
    call.value_end = end
    if call.streaming and sink.events is not None:
        if sink.ways.line_values:
            if call.held:
                text, call.held = "\n" + text, ""
            if text[-1] == "\n":
                text, call.held = text[:-1], "\n"
                if not text:
                    return
        sink.events.append(ArgumentsDelta(call.index, escaped(text)))


def end_argument(sink: Assembler, _: str | None, start: int, end: int) -> None:
    """An argument is complete."""
    call = sink.call or _open(sink, start)
    key = call.key
    if key is None:
        key = _begin_value(sink, call, end)
    text = call.value[0] if len(call.value) == 1 else "".join(call.value)
    if text[-1:] == "\n" and sink.ways.line_values:
        text = text[:-1]
    if not call.broken:
        value = text
        if sink.tools is None:
            if sink.infer_types:
                value = guess_value(text)
            elif not sink.untyped:
                sink.untyped = True
                sink.diagnose("untyped", call.value_start, call.value_end, key)
        elif call.types is not STRING:
            value, code = read_value(text, call.types)
            if code == "float_to_int" and sink.exact:
                value = read_json(text)
            elif code is not None:
                sink.diagnose(code, call.value_start, call.value_end, key)
        if key in call.arguments:
            sink.diagnose("duplicate_argument", start, end, key)
        if sink.events is not None:
            sink.events.append(ArgumentsDelta(call.index, '"' if call.streaming else _prefix(call, key) + dumps(value)))
        call.arguments[key] = value
    call.key = None
    call.value = []


def cut_argument(sink: Assembler, rule: str, start: int, end: int) -> None:
    """A value ended without its closer."""
    call = _open(sink, start)
    if sink.ending:
        if not call.broken:
            call.broken = True
            call.cut_value = {call.argument_name(): "".join(call.value)}
        return
    _repaired(sink, call)
    if not call.broken:
        sink.diagnose("unclosed_parameter", start, end, call.argument_name())
    end_argument(sink, rule, start, end)


def _repaired(sink: Assembler, call: OpenCall) -> None:
    """A call is whole only because something was put right."""
    sink.failed = True
    if sink.policy == "raw":
        call.broken = True


def set_broken(sink: Assembler, rule: str, start: int, end: int) -> None:
    """More than a closer is missing."""
    sink.failed = True
    if sink.call is not None or rule in CALL_RULES:
        _open(sink, start).broken = True


def cut_call_close(sink: Assembler, _: str, start: int, end: int) -> None:
    """The body of a call is complete, but its frame is not; the call itself ends next."""
    call = _open(sink, start)
    call.closed = call.cut = True


def cut_call(sink: Assembler, rule: str, start: int, end: int) -> None:
    """A call ended without its closer."""
    call = _open(sink, start)
    call.cut = False
    bare = not call.arguments and not call.closed
    if sink.ending:
        normally = sink.stopped or sink.finish_reason in ("stop", "tool_calls")
        if call.broken or sink.finish_reason == "length" or (bare and not normally):
            _truncate(sink, call, start, end)
            return
    elif bare:
        call.broken = True
    if not (sink.ending and sink.ways.stop_ends_calls):  # else what is missing is a stop token, which engines take off
        _repaired(sink, call)
        if not call.broken:
            sink.diagnose("unclosed_call", start, end, "".join(call.name_parts).strip())
    end_call(sink, rule, start, end)


def end_call(sink: Assembler, rule: str, start: int, end: int) -> None:
    """A call is complete."""
    call = sink.call
    if call is None:
        return
    if call.cut:
        cut_call(sink, rule, start, end)
        return
    if call.name is None:
        start_call(sink, call)
    if call.broken or call.name is None:
        if sink.ending:
            _truncate(sink, call, start, end)
        else:
            _drop(sink, call, call.code, start, end)
        return
    if sink.events is not None:
        if call.scanner is None:
            _send(sink, call, "}" if call.arguments else "{}")
        sink.events.append(ToolCallEnd(call.index))
    sink.segments.append(Segment("call", call.name, (start, end), len(sink.calls)))
    sink.calls.append((call.name, call.arguments))
    sink.call = None


def _drop(sink: Assembler, call: OpenCall, code: str, start: int, end: int) -> None:
    """The call is not handed out; its raw text is the diagnostic's span."""
    sink.call = None
    sink.failed = True
    if call.started and sink.events is not None:
        sink.events.append(ToolCallDropped(call.index, code))
    sink.diagnose(code, start, end, call.name or "".join(call.name_parts).strip() or None)


def _truncate(sink: Assembler, call: OpenCall, start: int, end: int) -> None:
    """The text ended inside a call."""
    name = call.name if call.name is not None else "".join(call.name_parts).strip()
    sink.partial = PartialCall(name, call.arguments, call.cut_value)
    _drop(sink, call, "truncated", start, end)


# ------------------------------------------------------------------------------------------ calls that are one JSON object


def add_call_json(sink: Assembler, text: str, start: int, end: int) -> None:
    """More of a call as JSON: its name and arguments."""
    call = sink.call or _open(sink, start)
    if not call.value:
        call.value_start, call.document = start, sink.document
    call.value.append(text)
    if len(call.value) > MANY:
        compact(call.value)
    call.value_end = end
    if sink.events is not None:
        if call.scanner is None:
            call.scanner = CallScanner()
        call.scanner.feed(text if sink.spell is None else sink.spell(text))
        if not call.started and call.scanner.name:
            start_call(sink, call, call.scanner.name, early=True)
        if call.started:
            _send(sink, call, call.scanner.take())


def end_json_call(sink: Assembler, rule: str, start: int, end: int) -> None:
    """A call as JSON is complete."""
    call = sink.call or _open(sink, start)
    body = call.document[0] if call.document is not None else _read_body(sink, call, _json_text(sink, call))
    if not isinstance(body, dict):
        call.broken, call.code = True, "malformed_json"
        scanner = CallScanner()  # one that read along may have read more than counts
        scanner.feed(_json_text(sink, call))
        call.name = scanner.name
    else:
        _take_body(sink, call, body)
    end_call(sink, rule, start, end)


def _json_text(sink: Assembler, call: OpenCall) -> str:
    """The open JSON run, as it is read."""
    text = "".join(call.value)
    return text if sink.spell is None else sink.spell(text)


def _take_body(sink: Assembler, call: OpenCall, body: dict[str, Any]) -> None:
    """Name and arguments of a JSON body; the body counts where the frame has another name."""
    span = call.value_start, call.value_end
    header = "".join(call.name_parts).strip()
    name = body.get("name", header)
    arguments: Any = {}
    for key in ARGUMENTS_KEYS:
        if key in body:
            arguments = body[key]
            if call.document is None and isinstance(arguments, dict):
                for repeated in _repeated(_json_text(sink, call), key):
                    sink.diagnose("duplicate_argument", *span, repeated)
            break
    if isinstance(arguments, str):
        arguments = _read_body(sink, call, arguments)
        if isinstance(arguments, dict):
            sink.diagnose("double_encoded", *span)
            if sink.policy == "raw":
                call.broken = True
    if not isinstance(name, str) or not isinstance(arguments, dict):
        call.broken = True
        if arguments is None:
            call.code = "malformed_json"
        return
    if header and header != name:
        sink.diagnose("name_mismatch", *span, header)
    start_call(sink, call, name)
    if call.scanner is not None and call.started:
        _send(sink, call, call.scanner.take() if call.scanner.found else dumps(arguments))
    call.arguments = arguments


def _repeated(text: str, key: str) -> set[str]:
    """The arguments that a JSON body has more than once; only the last of them is in what it is read as."""
    pairs = json.loads(text, object_pairs_hook=list)
    names = Counter(name for member, value in pairs if member == key and isinstance(value, list) for name, _ in value)
    return {name for name, times in names.items() if times > 1}


def _read_body(sink: Assembler, call: OpenCall, text: str) -> object:
    """A JSON body; None where it is none."""
    try:
        return read_json(text)
    except ValueError:
        pass
    try:
        body: object = read_json_mended(text)
    except ValueError:
        return None
    sink.diagnose("lone_surrogate", call.value_start, call.value_end)
    return body


def cut_json_call(sink: Assembler, rule: str, start: int, end: int) -> None:
    """A call as JSON without its closer."""
    call = _open(sink, start)
    text = _json_text(sink, call)
    if sink.ending and (sink.finish_reason == "length" or not _is_object(text)):
        scanner = call.scanner
        if scanner is None:
            scanner = CallScanner()
            scanner.feed(text)
        if call.name is None and scanner.name is not None:
            call.name_parts = [scanner.name]
        call.arguments, call.cut_value = cut_arguments(scanner, text)
        _truncate(sink, call, start, end)
        return
    _repaired(sink, call)
    sink.diagnose("unclosed_call", start, end)
    end_json_call(sink, rule, start, end)


def _is_object(text: str) -> bool:
    try:
        return isinstance(read_json(text), dict)
    except ValueError:
        return False


def end_args_json(sink: Assembler, rule: str, start: int, end: int) -> None:
    """Arguments as one JSON object; the frame has the name."""
    call = _open(sink, start)
    arguments = call.document[0] if call.document is not None else _read_body(sink, call, _json_text(sink, call))
    call.value = []
    if not isinstance(arguments, dict):
        call.broken, call.code = True, "malformed_json"
        return
    if call.name is None:
        start_call(sink, call)
    if not call.broken:
        call.arguments = arguments
        if arguments:
            _send(sink, call, dumps(arguments)[:-1])


def add_args_json(sink: Assembler, text: str, start: int, end: int) -> None:
    """More of a call's arguments as one JSON object."""
    call = _open(sink, start)
    if not call.value:
        call.value_start, call.document = start, sink.document
    call.value.append(text)
    call.value_end = end


def pass_over(sink: Assembler, text: str, start: int, end: int) -> None:
    """The name of a channel that the format does not have; the diagnostic has its place."""


def add_unknown_text(sink: Assembler, text: str, start: int, end: int) -> None:
    """The body of something that the format does not have; its raw text is the diagnostic's span."""
    _open(sink, start)


def drop_unknown_block(sink: Assembler, rule: str, start: int, end: int) -> None:
    """Something that the format does not have, without its end."""
    if sink.call is not None:
        _drop(sink, sink.call, "malformed_call", start, end)


def diagnose_alias(sink: Assembler, alias: str, start: int, end: int) -> None:
    """A rule that is aliased by its diagnostic."""
    if alias == "stray_recipient":  # what was taken for the name of a call
        sink.call = None
    if alias == "malformed_call":
        _drop(sink, _open(sink, start), alias, start, end)
        return
    if alias in ("missing_call_open", "foreign_dialect", "unclosed_call"):
        _repaired(sink, _open(sink, start))
    sink.diagnose(alias, start, end)


def end_bare_text(sink: Assembler, _: str, start: int, end: int) -> None:
    """What began like the header of a call is text."""
    call, sink.call = sink.call, None
    if call is not None:
        text = "".join(call.name_parts)
        sink.add_content(text, call.start, call.start + len(text))
        sink.end_text_block("", start, end)


def cut_bare_text(sink: Assembler, rule: str, start: int, end: int) -> None:
    """Such text without the end of its block."""
    sink.diagnose("stray_marker", start, end)
    end_bare_text(sink, rule, start, end)


HANDLERS = Handlers(
    runs={
        "REASONING": Assembler.add_reasoning,
        "CONTENT": Assembler.add_content,
        "AFTER_END": Assembler.add_after_end,
        "CALL_NAME": add_call_name,
        "ARG_NAME": add_arg_name,
        "ARG_VALUE": add_arg_value,
        "CALL_JSON": add_call_json,
        "UNKNOWN_TEXT": add_unknown_text,
        "ARGS_JSON": add_args_json,
        "CHANNEL_NAME": pass_over,
    },
    ends={
        "reasoning": Assembler.end_reasoning,
        "unclosed_thinking": Assembler.end_unclosed_thinking,
        "text_block": Assembler.end_text_block,
        "bare_text": end_bare_text,
        "unknown_block": drop_unknown_block,
        "stop": Assembler.end_stop,
        "argument": end_argument,
        "call": end_call,
        "json_call": end_json_call,
        "args_json": end_args_json,
        "final": Assembler.end_final,
        "final_last": Assembler.end_final,
    },
    cuts={
        "reasoning": Assembler.cut_reasoning,
        "argument": cut_argument,
        "call_close": cut_call_close,
        "call": cut_call,
        "json_call": cut_json_call,
        "bare_text": cut_bare_text,
        "unknown_block": drop_unknown_block,
    },
    broken=set_broken,
    diagnose=diagnose_alias,
)
