"""Lexemes to events and a message.  Shared by every format: it knows the vocabularies of runs and rules, not the format.

Rules of this module:

* a text run is handed on as it comes, less its layout: blanks at its edges where the format trims (`Layout.BLANKS`), the
  one newline before its end where the template writes one (`Layout.LINE`); a run of nothing but blanks beside a call is
  layout too;
* a call is handed out when it is complete; one that is broken is dropped with its raw text in the diagnostic's span, and
  one that the text cut off is `partial`;
* text is never lost: what is no part of the message has a diagnostic with its span;
* `strict` refuses at the first diagnostic that `errors.DIAGNOSTICS` says it refuses; `raw` promotes and repairs nothing.
"""

import json
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from .errors import DIAGNOSTICS, Diagnostic
from .events import (
    ArgumentsDelta,
    ContentDelta,
    Diagnosed,
    Event,
    ReasoningDelta,
    ToolCallDropped,
    ToolCallEnd,
    ToolCallStart,
)
from .grammar import Guard
from .machine import Handlers
from .messages import Message, Tool, assistant_message, function_of
from .values import (
    NO_SIGNATURE,
    STRING,
    Types,
    dumps,
    guess_value,
    read_json,
    read_json_mended,
    read_value,
    signature_of,
)

FinishReason = Literal["stop", "tool_calls", "length"]
Policy = Literal["strict", "recover", "raw"]


class Layout(Enum):
    """What at the edges of a run is layout."""

    BLANKS = "blanks"
    LINE = "line"


@dataclass(slots=True)
class Segment:
    """A piece of a reply in the order written: its text, where it stands, and for a call its index in `tool_calls`."""

    kind: Literal["reasoning", "content", "call"]
    text: str
    span: tuple[int, int]
    call: int | None = None


@dataclass(slots=True)
class PartialCall:
    """A call that was cut off: its name so far, the arguments that are closed, and the open one with its text so far."""

    name: str
    arguments: dict[str, Any]
    open: dict[str, str] | None


@dataclass(slots=True)
class Reply:
    """What a completion says."""

    message: Message
    segments: list[Segment]
    diagnostics: list[Diagnostic]
    partial: PartialCall | None
    finish_reason: FinishReason


class Settings:
    """How to read one reply: the format's ways and the caller's wishes."""

    __slots__ = ("empty_reasoning", "infer_types", "line_values", "policy", "tools", "trim_content", "trim_reasoning")

    def __init__(
        self,
        layout: Mapping[str, Layout],
        empty_reasoning: bool,
        tools: Sequence[Tool] | None = None,
        policy: Policy = "recover",
        infer_types: bool = False,
    ) -> None:
        self.trim_reasoning = layout.get("REASONING") is Layout.BLANKS
        self.trim_content = layout.get("CONTENT") is Layout.BLANKS
        self.line_values = layout.get("ARG_VALUE") is Layout.LINE
        self.empty_reasoning = empty_reasoning  #: reasoning that is there but empty is "", not None
        self.tools = tools
        self.policy = policy
        self.infer_types = infer_types


class Refused(Exception):
    """A diagnostic that the policy refuses.  Turned into a ParseError by the format."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.code)
        self.diagnostic = diagnostic


class _Text:
    """An open run of reasoning or content."""

    lead = ""  #: blanks before anything else
    waiting: list[str] | None = None  #: more of them, as they come
    held: Sequence[str] = ()  #: blanks that are layout if nothing follows
    start = end = 0

    def __init__(self, trim: bool, wait: bool) -> None:
        self.trim = trim
        self.wait = wait  #: hold leading blanks back: they may turn out to be all there is
        self.parts: list[str] = []

    def add(self, text: str, start: int, end: int) -> str:
        """More of the run; gives what is certain to belong to it."""
        if not self.parts:
            if self.waiting is None:
                self.start = start
            if ((self.trim or self.wait) and text[0].isspace()) or self.waiting is not None:
                text = self._after_blanks(text, start)
                if not text:
                    return ""
        if self.trim:
            if text[-1].isspace():
                body = text.rstrip()
                if not body:
                    if not isinstance(self.held, list):
                        self.held = []
                    self.held.append(text)
                    return ""
                tail = text[len(body) :]
                end -= len(tail)
                text = "".join(self.held) + body
                self.held = [tail]
            elif self.held:
                text = "".join(self.held) + text
                self.held = ()
        self.end = end
        self.parts.append(text)
        return text

    def _after_blanks(self, text: str, start: int) -> str:
        """What is left of a run's beginning without the blanks; with them, if only a run of nothing else is layout."""
        body = text.lstrip()
        if self.waiting is None:
            self.waiting = []
        self.waiting.append(text[: len(text) - len(body)])
        if not body:
            return ""
        self.lead = "".join(self.waiting)
        self.waiting = None
        if self.trim:
            self.start = start + len(text) - len(body)
            return body
        return self.lead + body

    def blanks(self) -> str:
        """A run of nothing but blanks."""
        return "".join(self.waiting or ())


class _Call:
    """An open call."""

    name: str | None = None
    signature = NO_SIGNATURE
    started = False
    broken = False
    closed = False  #: the body is complete, whatever becomes of the frame
    code = "malformed_call"  #: why it is broken
    key: str | None = None  #: the name of the open argument, once it is final
    types: Types | None = None
    value_start = value_end = 0
    streaming = False  #: the value is sent on while it arrives
    held = ""  #: a newline that is layout if the value ends behind it

    def __init__(self, index: int, start: int) -> None:
        self.index = index
        self.start = start
        self.name_parts: list[str] = []
        self.arguments: dict[str, Any] = {}
        self.key_parts: list[str] = []
        self.value: list[str] = []


class Assembler:
    """What was read so far of one reply."""

    # what only some replies need stands here as a default, so that making an assembler is cheap
    failed = False
    reasoning: list[str] | None = None
    unclosed = False  #: reasoning never ended
    text: _Text | None = None  #: the open run of content or reasoning
    call: _Call | None = None
    partial: PartialCall | None = None
    tool_index: dict[str, Tool] | None = None
    untyped = False
    after_end: tuple[int, int] | None = None  #: where text stands behind the stop token
    stopped = False
    ending = False
    finish_reason: FinishReason | None = None
    joint: Sequence[str] = ()  #: blanks between a text and the next, kept if there is a next

    def __init__(self, settings: Settings, events: list[Event] | None, *, index: int = 0) -> None:
        self.settings = settings
        self.events = events
        self.index = index
        self.segments: list[Segment] = []
        self.diagnostics: list[Diagnostic] = []
        self.content: list[str] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []

    # -- what the machine asks

    def stray(self, start: int, end: int) -> None:
        """Text where none belongs."""
        self.diagnose("stray_text", start, end)

    def cut_marker(self, start: int, end: int) -> None:
        """The text ended in what may have been the start of a marker."""
        self.diagnose("unterminated_marker_prefix", start, end)
        if self.finish_reason == "length":
            self.diagnose("truncated", start, end)

    def known_names(self, guard: Guard, name: str) -> frozenset[str] | set[str]:
        """The names of tools, or of the open call's arguments: all of them, or where `name` is "" those it lacks."""
        if guard is Guard.TOOL:
            return self._tools().keys()  # type: ignore[return-value]
        call = self.call
        if call is None:
            return frozenset()
        if call.name is None:
            self._name(call)
        if name:
            return call.signature.properties.keys()  # type: ignore[return-value]
        return call.signature.properties.keys() - call.arguments.keys() - {self._key(call)}

    def name_so_far(self) -> str:
        """The part of the open name that was handed on; none is so long that it could be known."""
        call = self.call
        if call is None:
            return ""
        parts = call.key_parts if call.key_parts or call.name is not None else call.name_parts
        return "".join(parts) if len(parts) < 256 else "\0"

    def trial(self) -> "Assembler | None":
        """An assembler for a call that reasoning runs into."""
        if self.settings.policy == "raw":
            return None
        events: list[Event] | None = None if self.events is None else []
        settings = self.settings
        if settings.policy == "strict":  # what a trial finds is refused when it is adopted, if it is
            settings = copy(settings)
            settings.policy = "recover"
        return Assembler(settings, events, index=self.index)

    def adopt(self, trial: Any) -> bool:
        """Take over what a trial found: whole calls up to the end of a text that ended normally."""
        if (
            trial.call is not None
            or trial.partial
            or not trial.calls
            or not (trial.stopped or self.finish_reason in ("stop", "tool_calls"))
        ):
            return False
        self.end_reasoning(None, 0, 0)
        for diagnostic in trial.diagnostics:
            self._refuse(diagnostic)
        self.diagnostics += trial.diagnostics
        self.segments += [Segment(s.kind, s.text, s.span, len(self.calls) + s.call) if s.call is not None else s for s in trial.segments]
        self.calls += trial.calls
        self.index = trial.index
        self.stopped = trial.stopped
        self.untyped = trial.untyped
        if self.events is not None:
            self.events += trial.events
        return True

    def ended(self) -> None:
        """No more text comes; what is still open is cut off."""
        self.ending = True

    # -- diagnostics

    def diagnose(self, code: str, start: int, end: int, detail: str | None = None) -> None:
        """Note something odd."""
        severity, _ = DIAGNOSTICS[code]
        diagnostic = Diagnostic(code, detail, (start, end), severity)
        self._refuse(diagnostic)
        self.diagnostics.append(diagnostic)
        if self.events is not None:
            self.events.append(Diagnosed(diagnostic))

    def _refuse(self, diagnostic: Diagnostic) -> None:
        if self.settings.policy == "strict" and DIAGNOSTICS[diagnostic.code][1]:
            raise Refused(diagnostic)

    # -- reasoning and content

    def add_reasoning(self, text: str, start: int, end: int) -> None:
        """More reasoning."""
        run = self.text
        if run is None:
            self._begin_reasoning(start, end)
            run = self.text = _Text(self.settings.trim_reasoning, False)
        new = run.add(text, start, end)
        if new:
            assert self.reasoning is not None
            self.reasoning.append(new)
            if self.events is not None:
                self.events.append(ReasoningDelta(new))

    def _begin_reasoning(self, start: int, end: int) -> None:
        if self.reasoning is None:
            self.reasoning = []
        elif self.reasoning:
            self.diagnose("reasoning_joined", start, end)
            self.reasoning.append("\n\n")
            if self.events is not None:
                self.events.append(ReasoningDelta("\n\n"))

    def end_reasoning(self, _: str | None, start: int, end: int) -> None:
        """Reasoning is over, even if there was none."""
        run = self.text
        if run is not None:
            if run.parts:
                self.segments.append(Segment("reasoning", "".join(run.parts), (run.start, run.end)))
            self.text = None
        if self.reasoning is None:
            self.reasoning = []

    def cut_reasoning(self, alias: str | None, start: int, end: int) -> None:
        """Reasoning never ended."""
        self.end_reasoning(alias, start, end)
        self.unclosed = True
        self.diagnose("unclosed_reasoning", start, end)

    def add_content(self, text: str, start: int, end: int) -> None:
        """More content."""
        run = self.text
        if run is None:
            run = self.text = _Text(self.settings.trim_content, True)
        first = not run.parts
        new = run.add(text, start, end)
        if new:
            if first and self.content and run.trim:
                new = "".join(self.joint) + run.lead + new
            self._send_content(new)

    def _send_content(self, text: str) -> None:
        self.content.append(text)
        if self.events is not None:
            self.events.append(ContentDelta(text))

    def _end_content(self, *, beside_call: bool) -> None:
        run = self.text
        if run is None:
            return
        self.text = None
        if run.waiting and not run.trim and not beside_call:
            run.parts.append(run.blanks())
            run.end = run.start + len(run.parts[0])
            self._send_content(run.parts[0])
        if run.parts:
            self.segments.append(Segment("content", "".join(run.parts), (run.start, run.end)))
            self.joint = run.held
            if self.index:
                self.diagnose("text_after_call", run.start, run.end)

    def end_stop(self, _: str | None, start: int, end: int) -> None:
        """The stop token."""
        self.stopped = True
        self._end_content(beside_call=self.index > 0)

    def add_after_end(self, text: str, start: int, end: int) -> None:
        """Text behind the stop token; blanks there are layout."""
        if not text.isspace():
            self.failed = True
            self.after_end = (self.after_end or (start, end))[0], end

    # -- calls

    def _open_call(self, start: int) -> _Call:
        if self.call is None:
            self._end_content(beside_call=True)
            self.call = _Call(self.index, start)
        return self.call

    def add_call_name(self, text: str, start: int, end: int) -> None:
        """More of a call's name."""
        call = self.call or self._open_call(start)
        if not call.name_parts:
            call.start = start
        call.name_parts.append(text)

    def _tools(self) -> dict[str, Tool]:
        if self.tool_index is None:
            self.tool_index = {}
            for tool in self.settings.tools or ():
                name = function_of(tool).get("name")
                if isinstance(name, str):
                    self.tool_index[name] = tool
        return self.tool_index

    def _name(self, call: _Call) -> None:
        """The name is final: the call starts, unless there is none."""
        name = "".join(call.name_parts)
        start, end = call.start, call.start + len(name)
        call.name = name = name.strip()
        if not name:
            call.broken = True
        if call.broken:
            return
        tools = self._tools()
        if self.settings.tools is not None and name not in tools:
            _, dot, bare = name.partition("functions.")
            if dot and not _ and bare in tools and self.settings.policy != "raw":
                self.diagnose("recipient_namespace", start, end, name)
                call.name = name = bare
            else:
                self.diagnose("unknown_tool", start, end, name)
        if name in tools:
            call.signature = signature_of(tools[name])
        self.index = call.index + 1
        call.started = True
        if self.events is not None:
            self.events.append(ToolCallStart(call.index, name))

    def add_arg_name(self, text: str, start: int, end: int) -> None:
        """More of an argument's name."""
        call = self.call or self._open_call(start)
        if call.name is None:
            self._name(call)
        call.key_parts.append(text)

    @staticmethod
    def _key(call: _Call) -> str:
        return call.key if call.key is not None else "".join(call.key_parts)

    def _begin_value(self, call: _Call, start: int) -> None:
        """The argument's name is final."""
        if call.name is None:
            self._name(call)
        settings = self.settings
        call.key = key = "".join(call.key_parts)
        call.value_start = call.value_end = start
        call.held = ""
        if settings.tools is None:
            call.types = None if settings.infer_types else STRING
        else:
            call.types = call.signature.types(key)
        call.streaming = self.events is not None and not call.broken and call.types == STRING
        if call.streaming:
            self._send_arguments(call, self._prefix(call) + '"')

    def _prefix(self, call: _Call) -> str:
        return ("{" if not call.arguments else ", ") + dumps(call.key) + ": "

    def _send_arguments(self, call: _Call, text: str) -> None:
        if text and self.events is not None:
            self.events.append(ArgumentsDelta(call.index, text))

    def add_arg_value(self, text: str, start: int, end: int) -> None:
        """More of an argument's value."""
        call = self.call or self._open_call(start)
        if call.key is None:
            self._begin_value(call, start)
        call.value.append(text)
        call.value_end = end
        if call.streaming:
            if self.settings.line_values:
                text = call.held + text
                call.held = ""
                if text[-1] == "\n":
                    text, call.held = text[:-1], "\n"
            self._send_arguments(call, json.dumps(text, ensure_ascii=False)[1:-1])

    def end_argument(self, _: str | None, start: int, end: int) -> None:
        """An argument is complete."""
        call = self.call or self._open_call(start)
        if call.key is None:
            self._begin_value(call, end)
        key = self._key(call)
        text = call.value[0] if len(call.value) == 1 else "".join(call.value)
        if text[-1:] == "\n" and self.settings.line_values:
            text = text[:-1]
        if not call.broken:
            value = self._read(call, key, text)
            if key in call.arguments:
                self.diagnose("duplicate_argument", start, end, key)
            if self.events is not None:
                self._send_arguments(call, '"' if call.streaming else self._prefix(call) + dumps(value))
            call.arguments[key] = value
        call.key = None
        call.key_parts.clear()
        call.value.clear()

    def _read(self, call: _Call, key: str, text: str) -> Any:
        if self.settings.tools is None:
            if self.settings.infer_types:
                return guess_value(text)
            if not self.untyped:
                self.untyped = True
                self.diagnose("untyped", call.value_start, call.value_end, key)
            return text
        value, code = read_value(text, call.types)
        if code is not None:
            self.diagnose(code, call.value_start, call.value_end, key)
        return value

    def cut_argument(self, alias: str | None, start: int, end: int) -> None:
        """A value ended without its closer."""
        call = self.call or self._open_call(start)
        if self.ending:
            self._truncate(start, end, with_value=not call.broken)
            return
        self._repaired(call)
        if not call.broken:
            self.diagnose("unclosed_parameter", start, end, self._key(call))
        self.end_argument(alias, start, end)

    def _repaired(self, call: _Call) -> None:
        """A call that is whole only because something was put right."""
        self.failed = True
        if self.settings.policy == "raw":
            call.broken = True

    def set_broken(self, _: str | None, start: int, end: int) -> None:
        """More than a closer is missing."""
        self.failed = True
        if self.ending:
            if self.call is not None:
                self.call.broken = True
                if self.call.key_parts and self.call.key is None:
                    self.call.key_parts.clear()
            return
        self._open_call(start).broken = True

    def end_call_close(self, alias: str | None, start: int, end: int) -> None:
        """The body of a call is complete."""
        call = self.call or self._open_call(start)
        call.closed = True
        if alias in DIAGNOSTICS:
            self._repaired(call)

    def cut_call_close(self, alias: str | None, start: int, end: int) -> None:
        """The body of a call is complete, but its frame is not; the call itself ends next."""
        call = self.call or self._open_call(start)
        call.closed = True
        self.cut_call(alias, start, end)

    def cut_call(self, alias: str | None, start: int, end: int) -> None:
        """A call ended without its closer."""
        call = self.call
        if call is None:
            return
        bare = not call.arguments and not call.closed
        if self.ending:
            normally = self.stopped or self.finish_reason in ("stop", "tool_calls")
            if call.broken or self.finish_reason == "length" or (bare and not normally):
                self._truncate(start, end, with_value=False)
                return
        elif bare:
            call.broken = True
        self._repaired(call)
        if not call.broken:
            self.diagnose("unclosed_call", start, end, "".join(call.name_parts).strip())
        self.end_call(None, start, end)

    def end_call(self, _: str | None, start: int, end: int) -> None:
        """A call is complete."""
        call = self.call
        if call is None:
            return
        if call.name is None:
            self._name(call)
        if call.broken:
            self._drop(call, call.code, start, end)
            return
        assert call.name is not None
        if self.events is not None:
            self._send_arguments(call, "}" if call.arguments else "{}")
            self.events.append(ToolCallEnd(call.index))
        self.segments.append(Segment("call", call.name, (start, end), len(self.calls)))
        self.calls.append((call.name, call.arguments))
        self.call = None

    def _drop(self, call: _Call, code: str, start: int, end: int) -> None:
        self.call = None
        if call.started and self.events is not None:
            self.events.append(ToolCallDropped(call.index, code))
        self.failed = True
        self.diagnose(code, start, end, call.name or "".join(call.name_parts).strip() or None)

    def _truncate(self, start: int, end: int, *, with_value: bool) -> None:
        """The text ended inside a call."""
        call = self.call
        if call is None:
            return
        self.failed = True
        opened = {self._key(call): "".join(call.value)} if with_value else None
        name = call.name if call.name is not None else "".join(call.name_parts).strip()
        self.partial = PartialCall(name, call.arguments, opened)
        self._drop(call, "truncated", call.start if call.name_parts else start, end)

    # -- calls that are one JSON object

    def add_call_json(self, text: str, start: int, end: int) -> None:
        """A whole call as JSON: its name and arguments."""
        call = self._open_call(start)
        call.value.append(text)
        call.value_start, call.value_end = start, end

    def end_json_call(self, alias: str | None, start: int, end: int) -> None:
        """A call as JSON is complete."""
        call = self.call or self._open_call(start)
        self._repaired(call)
        text = "".join(call.value)
        try:
            body = read_json(text)
        except ValueError:
            try:
                body = read_json_mended(text)
                self.diagnose("lone_surrogate", call.value_start, call.value_end)
            except ValueError:
                body = None
        arguments = body.get("arguments", {}) if isinstance(body, dict) else None
        if isinstance(arguments, str):
            try:
                arguments = read_json(arguments)
                self.diagnose("double_encoded", call.value_start, call.value_end)
            except ValueError:
                arguments = None
        if not isinstance(body, dict) or not isinstance(body.get("name"), str) or not isinstance(arguments, dict):
            call.broken = True
            call.code = "malformed_json" if body is None or arguments is None else "malformed_call"
        else:
            call.name_parts.append(body["name"])
            call.start = call.value_start
            self._name(call)
            call.arguments = arguments
            if arguments and not call.broken:
                self._send_arguments(call, dumps(arguments)[:-1])
        self.end_call(alias, start, end)

    def cut_json_call(self, alias: str | None, start: int, end: int) -> None:
        """A call as JSON without its closer."""
        if self.ending:
            if self.call is not None:
                self._truncate(start, end, with_value=False)
            return
        call = self.call or self._open_call(start)
        self._repaired(call)
        self.diagnose("unclosed_call", start, end)
        self.end_json_call(alias, start, end)

    # -- the end

    def finish(self, end: int) -> Reply:
        """The reply, once the machine has been closed; `end` is the length of the text."""
        if self.call is not None:
            self._truncate(self.call.start, end, with_value=False)
        self._end_content(beside_call=self.index > 0)
        if self.after_end is not None:
            self.diagnose("text_after_end", *self.after_end)
        given = self.finish_reason
        if not self.stopped and given is None and self.segments and self.segments[-1].kind == "call" and self.partial is None:
            self.diagnose("missing_stop", end, end)
        reasoning = "".join(self.reasoning) if self.reasoning is not None else None
        if reasoning == "" and not self.settings.empty_reasoning:
            reasoning = None
        message = assistant_message("".join(self.content) or None, reasoning, self.calls)
        finish: FinishReason = "tool_calls" if self.calls else "stop"
        if self.partial is not None or given == "length" or (given is None and not self.stopped and self.unclosed):
            finish = "length"
        return Reply(message, self.segments, self.diagnostics, self.partial, finish)


def _diagnose_alias(sink: Assembler, alias: str, start: int, end: int) -> None:
    if alias in ("missing_call_open", "foreign_dialect") and sink.settings.policy == "raw":
        sink._open_call(start).broken = True
    sink.diagnose(alias, start, end)


HANDLERS = Handlers(
    runs={
        "REASONING": Assembler.add_reasoning,
        "CONTENT": Assembler.add_content,
        "AFTER_END": Assembler.add_after_end,
        "CALL_NAME": Assembler.add_call_name,
        "ARG_NAME": Assembler.add_arg_name,
        "ARG_VALUE": Assembler.add_arg_value,
        "CALL_JSON": Assembler.add_call_json,
    },
    ends={
        "reasoning": Assembler.end_reasoning,
        "stop": Assembler.end_stop,
        "argument": Assembler.end_argument,
        "call_close": Assembler.end_call_close,
        "call": Assembler.end_call,
        "json_call": Assembler.end_json_call,
    },
    cuts={
        "reasoning": Assembler.cut_reasoning,
        "argument": Assembler.cut_argument,
        "call_close": Assembler.cut_call_close,
        "call": Assembler.cut_call,
        "json_call": Assembler.cut_json_call,
    },
    broken=Assembler.set_broken,
    diagnose=_diagnose_alias,
)
