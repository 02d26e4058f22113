"""Lexemes to events and a message.  Shared by every format: it knows the vocabularies of runs and rules, not the format.

Rules of this module and of `calls`, which has the part for calls:

* a text run is handed on as it comes, less its layout: blanks at its edges where the format trims (`Layout.BLANKS`), the
  one newline before its end where the template writes one (`Layout.LINE`); a run of nothing but blanks beside a call is
  layout too;
* a call is handed out when it is complete; one that is broken is dropped with its raw text in the diagnostic's span, and
  one that the text cut off is `partial`;
* text is never lost: what is no part of the message has a diagnostic with its span;
* `strict` refuses at the first diagnostic that `errors.DIAGNOSTICS` says it refuses; `raw` promotes and repairs nothing.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from .errors import DIAGNOSTICS, Diagnostic
from .events import ContentDelta, Diagnosed, Event, ReasoningDelta
from .grammar import Guard
from .jsonstream import CallScanner
from .messages import NAMESPACE, Function, assistant_message
from .reply import FinishReason, PartialCall, Policy, Reply, Segment, Ways
from .values import NO_SIGNATURE, Signature, Types, signature_of


class Refused(Exception):
    """A diagnostic that the policy refuses.  Turned into a ParseError by the format."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.code)
        self.diagnostic = diagnostic


MANY = 48  #: pieces, from which on they are joined now and then, since each costs more memory than its text


def compact(pieces: list[str]) -> None:
    """Join pieces of a text so that few are left, each more than twice as long as the next: no character moves often."""
    joined = "".join(pieces[-MANY // 2 :])
    del pieces[-MANY // 2 :]
    while pieces and len(pieces[-1]) <= 2 * len(joined):
        joined = pieces.pop() + joined
    pieces.append(joined)


class TextRun:
    """An open run of reasoning or content."""

    lead = ""  #: blanks before anything else
    waiting: list[str] | None = None  #: more of them, as they come
    tail = ""  #: blanks that are layout if nothing follows
    more: list[str] | None = None  #: more of those, as they come
    start = end = 0

    def __init__(self, trim: bool, wait: bool, *, thinks: bool = False) -> None:
        self.thinks = thinks  #: it is reasoning
        self.trim = trim
        self.wait = wait  #: hold leading blanks back: they may turn out to be all there is
        self.parts: list[str] = []
        self.tail, self.waiting = "", None  # in the object itself, since every piece of a stream looks at them

    def add(self, text: str, start: int, end: int) -> str:
        """More of the run; gives what is certain to belong to it."""
        parts = self.parts
        if not parts:
            if self.waiting is None:
                self.start = start
            if self.waiting is not None or ((self.trim or self.wait) and text[0].isspace()):
                text = self._after_blanks(text, start)
                if not text:
                    return ""
        if self.trim:
            body = text.rstrip()
            if not body:
                if not self.tail:
                    self.tail = text
                elif self.more is None:
                    self.more = [text]
                else:
                    self.more.append(text)
                return ""
            if self.tail:
                tail, self.tail = self.trailing(), text[len(body) :]
                self.more = None
                end -= len(self.tail)
                text = tail + body
            elif body is not text:
                self.tail = text[len(body) :]
                end -= len(self.tail)
                text = body
        self.end = end
        parts.append(text)
        if len(parts) > MANY:
            compact(parts)
        return text

    def trailing(self) -> str:
        """The blanks that are layout if nothing follows."""
        return self.tail + "".join(self.more) if self.more is not None else self.tail

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


class OpenCall:
    """A call that is being read."""

    name: str | None = None  #: once it is final
    signature: Signature = NO_SIGNATURE
    started = False
    broken = False
    closed = False  #: the body is complete, whatever becomes of the frame
    cut = False  #: the frame lacks its closer
    code = "malformed_call"  #: why it is broken
    key: str | None = None  #: the name of the open argument, once it is final
    cut_value: dict[str, str] | None = None  #: the argument that the text was cut off in
    types: Types | None = None
    value_start = value_end = 0
    streaming = False  #: the value is sent on while it arrives
    document: tuple[Any] | None = None  #: what the JSON run says, if it was read already
    scanner: CallScanner | None = None  #: reads a JSON body while it arrives
    held = ""  #: a newline that is layout if the value ends behind it

    def __init__(self, index: int, start: int) -> None:
        self.index = index
        self.start = start
        self.name = self.key = None  # in the object itself, as above
        self.streaming, self.held = False, ""
        self.name_parts: list[str] = []
        self.arguments: dict[str, Any] = {}
        self.key_parts: list[str] = []
        self.value: list[str] = []

    def argument_name(self) -> str:
        """The name of the open argument so far."""
        return self.key if self.key is not None else "".join(self.key_parts)


class Assembler:
    """What was read so far of one reply."""

    # what only some replies need stands here as a default, so that making an assembler is cheap
    failed = False
    reasoning: list[str] | None = None
    unclosed = False  #: reasoning never ended
    text: TextRun | None = None  #: the open run of content or reasoning
    call: OpenCall | None = None
    spell: Callable[[str], str] | None = None  #: gives text as it is read, where the machine has another spelling
    document: tuple[Any] | None = None  #: what the JSON run that comes says, if it was read already
    partial: PartialCall | None = None
    untyped = False
    exact = False  #: values are as they were written: a number with a point is no integer
    after_end: tuple[int, int] | None = None  #: where text stands behind the stop token
    called = False  #: a call came, whatever became of it
    stopped = False
    ending = False
    finish_reason: FinishReason | None = None
    blocks: list[str] | None = None  #: the texts of a format whose content is a list of them
    joint = ""  #: blanks between a text and the next, kept if there is a next
    index = 0  #: of the next call

    def __init__(
        self,
        ways: Ways,
        tools: Mapping[str, Function] | None,
        events: list[Event] | None,
        *,
        policy: Policy = "recover",
        infer_types: bool = False,
    ) -> None:
        self.ways = ways
        self.tools = tools  #: the functions that may be called, by name
        self.events = events
        self.policy = policy
        self.infer_types = infer_types
        self.text = self.call = self.spell = None  # in the object itself, since every piece of a stream looks at them
        self.segments: list[Segment] = []
        self.diagnostics: list[Diagnostic] = []
        self.content: list[str] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []

    # -- what the machine asks

    def stray(self, start: int, end: int) -> None:
        """Text where none belongs."""
        self.diagnose("stray_text", start, end)

    def cut_marker(self, start: int, end: int) -> None:
        """The text ended in what may have been the start of a marker; inside a call that is what cuts it off."""
        if self.call is not None:
            return
        self.diagnose("unterminated_marker_prefix", start, end)
        if self.finish_reason == "length":
            self.diagnose("truncated", start, end)

    def json_so_far(self) -> str:
        """The open JSON run, as far as it was handed on."""
        return "".join(self.call.value) if self.call is not None else ""

    def shorten(self, text: str, start: int) -> None:
        """The open JSON run is no more than this text."""
        if self.call is not None:
            self.call.value = [text]
            self.call.value_start, self.call.value_end = start, start + len(text)

    def known_names(self, guard: Guard, name: str) -> AbstractSet[str]:
        """The names of tools, or of the open call's arguments: all of them, or where `name` is "" those it lacks."""
        if guard is Guard.TOOL:
            return frozenset(self.tools or ())
        call = self.call
        if call is None:
            return frozenset()
        signature = call.signature
        if call.name is None:  # it is complete, but nothing that makes it final was handed on
            known = self.known_name("".join(call.name_parts).strip())
            signature = signature_of(self.tools[known]) if self.tools and known else NO_SIGNATURE
        if name:
            return frozenset(signature.properties)
        return signature.properties.keys() - call.arguments.keys() - {call.argument_name()}

    def known_name(self, name: str) -> str | None:
        """The tool that a name means: its own, or without a namespace before it."""
        tools = self.tools or ()
        if name in tools:
            return name
        bare = name.removeprefix(NAMESPACE)
        return bare if bare in tools and self.policy != "raw" else None

    def name_so_far(self, guard: Guard) -> str:
        """The part of the open name, of a tool or of an argument, that was handed on; none is so long that it could be known."""
        call = self.call
        if call is None:
            return ""
        parts = call.key_parts if guard is Guard.ARGUMENT else call.name_parts
        return "".join(parts) if len(parts) < 256 else "\0"

    def trial(self) -> "Assembler | None":
        """An assembler for a call that reasoning runs into."""
        if self.policy == "raw":
            return None
        # what a trial finds is refused when it is adopted, if it is
        made = Assembler(self.ways, self.tools, None if self.events is None else [], infer_types=self.infer_types)
        made.index, made.spell = self.index, self.spell
        return made

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
        self.called = True
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
        if self.policy == "strict" and DIAGNOSTICS[diagnostic.code][1]:
            raise Refused(diagnostic)

    # -- reasoning and content

    def add_reasoning(self, text: str, start: int, end: int) -> None:
        """More reasoning."""
        run = self.text
        if run is None:
            self._begin_reasoning(start)
            run = self.text = TextRun(self.ways.trim_reasoning, False, thinks=True)
        new = run.add(text, start, end)
        if new and self.events is not None:
            self.events.append(ReasoningDelta(new))

    def _begin_reasoning(self, start: int) -> None:
        if self.reasoning is None:
            self.reasoning = []
        elif self.reasoning:
            self.diagnose("reasoning_joined", start, start)
            self.reasoning.append("\n\n")
            if self.events is not None:
                self.events.append(ReasoningDelta("\n\n"))

    def end_reasoning(self, _: str | None, start: int, end: int) -> None:
        """Reasoning is over, even if there was none."""
        run = self.text
        if self.reasoning is None:
            self.reasoning = []
        if run is not None:
            if run.parts:
                text = "".join(run.parts)
                self.reasoning.append(text)
                self.segments.append(Segment("reasoning", text, (run.start, run.end)))
            self.text = None

    def cut_reasoning(self, alias: str | None, start: int, end: int) -> None:
        """Reasoning never ended."""
        self.end_reasoning(alias, start, end)
        self.unclosed = True
        self.diagnose("unclosed_reasoning", start, end)

    def add_content(self, text: str, start: int, end: int) -> None:
        """More content."""
        run = self.text
        if run is None:
            run = self.text = TextRun(self.ways.trim_content, not self.ways.text_blocks)
        first = not run.parts
        new = run.add(text, start, end)
        if new:
            if first and self.content and run.trim:
                self.content.append(self.joint + run.lead)
                new = self.content[-1] + new
            if self.events is not None:
                self.events.append(ContentDelta(new))

    def end_content(self, *, beside_call: bool) -> None:
        """The open run of content is over."""
        run = self.text
        if run is None or run.thinks:
            return
        self.text = None
        if run.waiting and not run.trim and not beside_call:
            run.parts.append(run.blanks())
            run.end = run.start + len(run.parts[0])
            if self.events is not None:
                self.events.append(ContentDelta(run.parts[0]))
        if run.parts:
            text = "".join(run.parts)
            self.content.append(text)
            self.segments.append(Segment("content", text, (run.start, run.end)))
            self.joint = run.trailing()
            if self.calls:
                self.diagnose("text_after_call", run.start, run.end)

    def end_text_block(self, _: str, start: int, end: int) -> None:
        """A block of text is over, even if it was empty."""
        if self.blocks is None:
            self.blocks = []
        self.blocks.append("".join(self.text.parts) if self.text is not None else "")
        self.end_content(beside_call=False)

    def end_final(self, _: str, start: int, end: int) -> None:
        """A message with content is over."""
        self.end_content(beside_call=False)

    def end_unclosed_thinking(self, alias: str, start: int, end: int) -> None:
        """A block of reasoning without its closer: another block began, or the text ended."""
        if self.ending:
            self.cut_reasoning(alias, start, end)
        else:
            self.failed = True
            self.end_reasoning(alias, start, end)
            self.diagnose("unclosed_block", start, end)

    def end_stop(self, _: str | None, start: int, end: int) -> None:
        """The stop token."""
        self.stopped = True
        self.end_content(beside_call=self.called)

    def add_after_end(self, text: str, start: int, end: int) -> None:
        """Text behind the stop token; blanks there are layout."""
        if not text.isspace():
            self.failed = True
            first = start + len(text) - len(text.lstrip()) if self.after_end is None else self.after_end[0]
            self.after_end = first, start + len(text.rstrip())

    # -- the end

    def finish(self, end: int) -> Reply:
        """The reply, once the machine has been closed; `end` is the length of the text."""
        self.end_content(beside_call=self.called)
        if self.after_end is not None:
            self.diagnose("text_after_end", *self.after_end)
        given = self.finish_reason
        if not self.stopped and given is None and self.segments and self.segments[-1].kind == "call" and self.partial is None:
            self.diagnose("missing_stop", end, end)
        reasoning = "".join(self.reasoning) if self.reasoning is not None else None
        if reasoning == "" and not self.ways.empty_reasoning:
            reasoning = None
        content: Any = "".join(self.content) or None
        if self.blocks is not None:
            content = self.blocks[0] if len(self.blocks) == 1 else [{"type": "text", "text": text} for text in self.blocks]
        message = assistant_message(content, reasoning, self.calls)
        finish: FinishReason = "tool_calls" if self.calls else "stop"
        if self.partial is not None or given == "length" or (given is None and not self.stopped and self.unclosed):
            finish = "length"
        return Reply(message, self.segments, self.diagnostics, self.partial, finish)
