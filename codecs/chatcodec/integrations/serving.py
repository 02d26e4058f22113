"""What the plug-ins for serving engines share: one completion, told to a client while a model writes it.

Rules of this module:

* it knows no engine: plain texts go in, plain deltas come out;
* one `Answer` a completion, which holds one `Stream`; a whole completion is one feed and one close of the same `Answer`;
* a call is finished only when the codec says so: until then the end of its arguments is held back, so that what was told of
  a call that is dropped later is never a whole JSON object;
* text does not vanish: where nobody asked for calls they stay in the content as the model wrote them, where nobody asked for
  reasoning it stands before the content, and what the codec found odd is logged.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..events import ArgumentsDelta, ContentDelta, Event, ReasoningDelta, ToolCallDropped, ToolCallEnd, ToolCallStart
from ..format import Format
from ..jsontext import dumps
from ..messages import Tool
from ..reply import FinishReason, Reply
from .opening import generation_prompt, marks, open_stream, reasoning_closed

PREFIX = "chatcodec_"  #: before a format's name: an engine's own parsers are named after models too

_JOINT = "\n\n"  #: between reasoning and content where they are one text
_BROKEN = frozenset(("truncated", "malformed_call", "malformed_json"))

log = logging.getLogger("chatcodec")


@dataclass(slots=True)
class CallDelta:
    """More of a call: its name, once, and more of its arguments as JSON text.

    `index` numbers the calls told, from 0.  `finished`: this is the last of it, and it may be run.
    """

    index: int
    name: str | None
    arguments: str
    finished: bool = False


@dataclass(slots=True)
class Delta:
    """What is new in a completion."""

    reasoning: str = ""
    content: str = ""
    calls: list[CallDelta] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.reasoning or self.content or self.calls)

    def __add__(self, later: "Delta") -> "Delta":
        return Delta(self.reasoning + later.reasoning, self.content + later.content, self.calls + later.calls)


class Whole(NamedTuple):
    """A whole completion: texts, and the finished calls with all their arguments."""

    reasoning: str
    content: str
    calls: list[CallDelta]


class Answer:
    """A completion on its way to a client.

    `apart`: reasoning is told as reasoning, else it stands before the content.  `calls`: calls are told as calls, else they
    stay in the content.  The other arguments are those of `open_stream`.
    """

    def __init__(
        self,
        fmt: Format,
        *,
        tools: Sequence[Tool] | None = None,
        prompt: str | None = None,
        options: Mapping[str, Any] | None = None,
        apart: bool = True,
        calls: bool = True,
    ) -> None:
        self._fmt, self._apart, self.tells_calls = fmt, apart, calls
        self._stream, prefill, self._known = open_stream(fmt, tools=tools, prompt=prompt, options=options)
        self._text: list[str] = [] if calls else [prefill]  #: kept where calls stay text
        self._numbers: dict[int, int] = {}  #: the codec's number of a call, and the one that it is told under
        self._held: list[str] = []  #: the end of the open call's arguments
        self._argued = False  #: the open call has arguments
        self._thinking = False  #: reasoning was written last, into the content
        self._spoke = False  #: there is content
        self._reasoning: list[str] = []

    def feed(self, text: str) -> Delta:
        """Take more of the completion; gives what is new.  Raises CodecError for what is no text."""
        if not self.tells_calls:
            self._text.append(text)
        return self._tell(self._stream.feed(text))

    def close(self, finish_reason: FinishReason | None = None) -> Delta:
        """The completion is over; gives what was held back."""
        delta = self._tell(self._stream.close(finish_reason))
        reply = self.reply
        if not self.tells_calls:
            left = calls_as_text("".join(self._text), reply)
            delta.content += f"\n{left}" if left and self._spoke else left
        odd = [f"{found.code} at {found.span[0]}-{found.span[1]}" for found in reply.diagnostics if found.severity != "info"]
        if odd:
            log.warning("%s: %s", self._fmt.name, ", ".join(odd[:20]))
        return delta

    @property
    def reply(self) -> Reply:
        """What the codec read.  Raises CodecError before `close`."""
        return self._stream.reply

    @property
    def reasoning(self) -> str:
        """All reasoning so far."""
        return "".join(self._reasoning)

    def _tell(self, events: Sequence[Event]) -> Delta:
        reasoning: list[str] = []
        content: list[str] = []
        calls: list[_Told] = []
        for event in events:
            if isinstance(event, ReasoningDelta | ContentDelta):
                text = event.text.removeprefix(self._known)
                self._known = ""
                if isinstance(event, ReasoningDelta):
                    self._reasoning.append(text)
                    (reasoning if self._apart else content).append(text)
                    self._thinking = not self._apart
                else:
                    if self._thinking:
                        content.append(_JOINT)
                        self._thinking = False
                    content.append(text)
            elif self.tells_calls and isinstance(event, ToolCallStart | ArgumentsDelta | ToolCallEnd | ToolCallDropped):
                self._tell_call(event, calls)
        self._spoke = self._spoke or bool(content)
        return Delta("".join(reasoning), "".join(content), [call.delta() for call in calls])

    def _tell_call(self, event: ToolCallStart | ArgumentsDelta | ToolCallEnd | ToolCallDropped, calls: list["_Told"]) -> None:
        if isinstance(event, ToolCallStart):
            self._held, self._argued = [], False
            self._numbers[event.index] = len(self._numbers)
            calls.append(_Told(self._numbers[event.index], event.name))
            return
        number = self._numbers.get(event.index)
        if number is None or isinstance(event, ToolCallDropped):
            return
        new: list[str] = []
        finished = isinstance(event, ToolCallEnd)
        if isinstance(event, ToolCallEnd):
            new, self._held = self._held if self._argued else ["{}"], []
        elif self._held and not event.text.strip():
            self._held.append(event.text)
        else:
            self._argued = True
            body = event.text.rstrip()
            cut = len(body) - body.endswith("}")
            new = [*self._held, event.text[:cut]]
            self._held = [event.text[cut:]]
        if finished or any(new):
            if not calls or calls[-1].index != number:
                calls.append(_Told(number))
            calls[-1].parts.extend(new)
            calls[-1].finished = finished


class _Told:
    """What one step tells of one call."""

    def __init__(self, index: int, name: str | None = None) -> None:
        self.index, self.name, self.finished = index, name, False
        self.parts: list[str] = []

    def delta(self) -> CallDelta:
        return CallDelta(self.index, self.name, "".join(self.parts), self.finished)


class BareAnswer:
    """A completion that a grammar holds to a schema: from its reasoning's end on it is content without any frame.

    `from_start`: without reasoning, too.  The other arguments are those of `Answer`, whose face this has.
    """

    def __init__(
        self,
        fmt: Format,
        *,
        prompt: str | None = None,
        options: Mapping[str, Any] | None = None,
        from_start: bool = False,
        apart: bool = True,
    ) -> None:
        self._end, self._stops, self._apart = marks(fmt).end, marks(fmt).stops, apart
        closed = from_start or reasoning_closed(fmt, prompt or generation_prompt(fmt, options))
        self._inner = None if closed else Answer(fmt, prompt=prompt, options=options, apart=apart, calls=False)
        self._tail = ""  #: the last of the reasoning, where its end may begin
        self._held = ""  #: the last of the content, where a stop token may begin
        self.reasoning = ""

    def feed(self, text: str) -> Delta:
        """Take more of the completion; gives what is new."""
        delta = Delta()
        if self._inner is not None:
            window = self._tail + text
            found = window.find(self._end)
            if found < 0:
                self._tail = window[-(len(self._end) - 1) :]
                return self._reasoned(self._inner.feed(text))
            cut = found + len(self._end) - len(self._tail)
            delta = self._reasoned(self._inner.feed(text[:cut]) + self._inner.close())
            self._inner, text = None, text[cut:]
            if delta.content or (self.reasoning and not self._apart):
                delta.content += _JOINT
        text = self._held + text
        keep = max((size for stop in self._stops for size in range(1, len(stop) + 1) if text.endswith(stop[:size])), default=0)
        self._held = text[len(text) - keep :]
        delta.content += text[: len(text) - keep]
        return delta

    def close(self, finish_reason: FinishReason | None = None) -> Delta:
        """The completion is over; gives what was held back."""
        if self._inner is not None:
            return self._reasoned(self._inner.close(finish_reason))
        return Delta(content="" if self._held in self._stops else self._held)

    def _reasoned(self, delta: Delta) -> Delta:
        if self._inner is not None:
            self.reasoning = self._inner.reasoning
        return delta


def read_whole(answer: Answer | BareAnswer, text: str) -> Whole:
    """All of a completion, read with a fresh answer."""
    delta = answer.feed(text) + answer.close()
    calls: list[CallDelta] = []
    if isinstance(answer, Answer) and answer.tells_calls:
        made = enumerate(answer.reply.message.tool_calls)
        calls = [CallDelta(index, call.name, dumps(call.arguments), True) for index, call in made]
    return Whole(delta.reasoning, delta.content, calls)


def calls_as_text(text: str, reply: Reply) -> str:
    """The calls of a completion as they were written, finished or not, one below the other."""
    spans = [segment.span for segment in reply.segments if segment.kind == "call"]
    spans += [found.span for found in reply.diagnostics if found.code in _BROKEN]
    written: list[str] = []
    end = 0
    for start, stop in sorted(spans):
        if stop > end:
            written.append(text[max(start, end) : stop].strip())
            end = stop
    return "\n".join(filter(None, written))
