"""Lexemes of calls to calls: the part of the assembler that reads names, arguments and JSON bodies.

The functions are handlers of the machine (see `HANDLERS`); the rules are those of `assembler`.
"""

from .assembler import Assembler, OpenCall
from .events import ArgumentsDelta, ToolCallDropped, ToolCallEnd, ToolCallStart
from .grammar import CALL_RULES
from .messages import NAMESPACE
from .reply import PartialCall, Segment
from .sink import Handlers
from .values import STRING, dumps, escaped, guess_value, read_json, read_json_mended, read_value, signature_of


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


def start_call(sink: Assembler, call: OpenCall) -> None:
    """The name is final: the call starts, unless it is broken."""
    written = "".join(call.name_parts)
    call.name = name = written.strip()
    if not name:
        call.broken = True
    if call.broken:
        return
    tools = sink.tools
    if tools is not None:
        if name not in tools:
            span = call.start, call.start + len(written)
            if name.startswith(NAMESPACE) and name[len(NAMESPACE) :] in tools and sink.policy != "raw":
                sink.diagnose("recipient_namespace", *span, name)
                call.name = name = name[len(NAMESPACE) :]
            else:
                sink.diagnose("unknown_tool", *span, name)
        if name in tools:
            call.signature = signature_of(tools[name])
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


def _begin_value(sink: Assembler, call: OpenCall, start: int) -> None:
    """The argument's name is final."""
    if call.name is None:
        start_call(sink, call)
    parts = call.key_parts
    call.key = key = parts[0] if len(parts) == 1 else "".join(parts)
    call.value_start = call.value_end = start
    if sink.tools is None:
        call.types = None if sink.infer_types else STRING
    else:
        call.types = call.signature.types(key)
    if sink.events is not None:
        call.held = ""
        call.streaming = not call.broken and call.types == STRING
        if call.streaming:
            _send(sink, call, _prefix(call) + '"')


def _prefix(call: OpenCall) -> str:
    return ("{" if not call.arguments else ", ") + dumps(call.key) + ": "


def _send(sink: Assembler, call: OpenCall, text: str) -> None:
    if text and sink.events is not None:
        sink.events.append(ArgumentsDelta(call.index, text))


def add_arg_value(sink: Assembler, text: str, start: int, end: int) -> None:
    """More of an argument's value."""
    call = sink.call or _open(sink, start)
    if call.key is None:
        _begin_value(sink, call, start)
    call.value.append(text)
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
    if call.key is None:
        _begin_value(sink, call, end)
    key = call.argument_name()
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
            if code is not None:
                sink.diagnose(code, call.value_start, call.value_end, key)
        if key in call.arguments:
            sink.diagnose("duplicate_argument", start, end, key)
        if sink.events is not None:
            _send(sink, call, '"' if call.streaming else _prefix(call) + dumps(value))
        call.arguments[key] = value
    call.key = None
    call.key_parts = []
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
    """A whole call as JSON: its name and arguments."""
    call = _open(sink, start)
    call.value.append(text)
    call.value_start, call.value_end = start, end


def end_json_call(sink: Assembler, rule: str, start: int, end: int) -> None:
    """A call as JSON is complete."""
    call = _open(sink, start)
    _repaired(sink, call)
    body = _read_body(sink, call, "".join(call.value))
    if isinstance(body, dict):
        name, arguments = body.get("name"), body.get("arguments", {})
        if isinstance(arguments, str):
            arguments = _read_body(sink, call, arguments)
            if isinstance(arguments, dict):
                sink.diagnose("double_encoded", call.value_start, call.value_end)
        if isinstance(name, str) and isinstance(arguments, dict):
            call.name_parts, call.start = [name], call.value_start
            start_call(sink, call)
            call.arguments = arguments
            if arguments and not call.broken:
                _send(sink, call, dumps(arguments)[:-1])
        else:
            call.broken = True
            if arguments is None:
                call.code = "malformed_json"
    else:
        call.broken = True
        call.code = "malformed_json"
    end_call(sink, rule, start, end)


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
    if sink.ending:
        _truncate(sink, _open(sink, start), start, end)
        return
    _repaired(sink, _open(sink, start))
    sink.diagnose("unclosed_call", start, end)
    end_json_call(sink, rule, start, end)


def diagnose_alias(sink: Assembler, alias: str, start: int, end: int) -> None:
    """A rule that is aliased by its diagnostic."""
    if alias in ("missing_call_open", "foreign_dialect", "unclosed_call"):
        _repaired(sink, _open(sink, start))
    sink.diagnose(alias, start, end)


HANDLERS = Handlers(
    runs={
        "REASONING": Assembler.add_reasoning,
        "CONTENT": Assembler.add_content,
        "AFTER_END": Assembler.add_after_end,
        "CALL_NAME": add_call_name,
        "ARG_NAME": add_arg_name,
        "ARG_VALUE": add_arg_value,
        "CALL_JSON": add_call_json,
    },
    ends={
        "reasoning": Assembler.end_reasoning,
        "stop": Assembler.end_stop,
        "argument": end_argument,
        "call": end_call,
        "json_call": end_json_call,
    },
    cuts={
        "reasoning": Assembler.cut_reasoning,
        "argument": cut_argument,
        "call_close": cut_call_close,
        "call": cut_call,
        "json_call": cut_json_call,
    },
    broken=set_broken,
    diagnose=diagnose_alias,
)
