"""A parse in progress: fed with text or with token ids, forked, saved and resumed.

Rules of this module: it holds what a parse needs and hands on what comes; what the text says is the machine's and the
assembler's to find out.
"""

from collections.abc import Iterable
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NoReturn, Self

from .assembler import Assembler, Refused
from .controls import ControlTokens
from .detokenizer import Detokenizer
from .errors import CodecError
from .events import Event
from .machine import Machine
from .reply import FinishReason, Reply

if TYPE_CHECKING:
    from .format import Format


class Stream:
    """A parse in progress.  It can be pickled, forked, saved as JSON, and resumed elsewhere."""

    __slots__ = ("_careful", "_format", "_guards", "_machine", "_reply", "_sink", "_start", "_text")

    def __init__(self, format: "Format", start: str, sink: Assembler, machine: Machine, guards: ControlTokens | None = None) -> None:
        self._format, self._start, self._sink, self._machine, self._guards = format, start, sink, machine, guards
        self._text: list[str] | None = [] if sink.policy == "strict" else None  #: for the error that may come
        self._careful = self._text is not None  #: there is more to do for each piece than to feed it
        self._reply: Reply | None = None

    def feed(self, text: str) -> list[Event]:
        """Take more of the completion; gives what is new.  Under `policy="strict"` raises ParseError."""
        if self._careful or type(text) is not str:
            self._look_at(text)
        try:
            self._machine.feed(text)
        except Refused as refused:
            self._fail(refused)
        events = self._sink.events
        if not events:
            return []
        self._sink.events = []
        return events

    def _look_at(self, text: Any) -> None:
        self._format._check_text(text)
        if self._reply is not None:
            raise CodecError(f"{self._format.name}: the stream is closed")
        if self._text is not None:
            self._text.append(text)

    def close(self, finish_reason: FinishReason | None = None) -> list[Event]:
        """The completion is over; gives the last events.  `finish_reason` is why the engine stopped."""
        if self._reply is None:
            self._sink.finish_reason = self._format._finish_reason(finish_reason)
            try:
                self._machine.feed("", final=True)
                self._reply = self._sink.finish(self._machine.position)
                self._careful = True
            except Refused as refused:
                self._fail(refused)
        events, self._sink.events = self._sink.events, []
        return events or []

    @property
    def reply(self) -> Reply:
        """What the completion says.  Raises CodecError before `close`."""
        if self._reply is None:
            raise CodecError(f"{self._format.name}: the stream is not closed yet")
        return self._reply

    def fork(self) -> Self:
        """An independent stream that goes on from here (for several samples, or beams).  The tools are shared."""
        return deepcopy(self)

    def to_json(self) -> str:
        """The state as JSON text; `resume` of its format goes on from it.  Raises CodecError for tools that JSON cannot hold."""
        from .snapshot import dump

        if self._reply is not None:
            raise CodecError(f"{self._format.name}: the stream is closed")
        return dump(self._format.name, self._start, self._machine, self._text)

    def _fail(self, refused: Refused) -> NoReturn:
        text = "".join(self._text or ())
        raise self._format._refused(refused, text if self._guards is None else self._guards.spell(text), self._sink) from None

    def __copy__(self) -> Self:
        return self.fork()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        for shared in (self._sink.tools, self._guards):
            memo[id(shared)] = shared
        made = object.__new__(type(self))
        made.__setstate__(deepcopy(self.__getstate__(), memo))
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"_format": self._format.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        from .formats import get_format

        for name, value in state.items():
            setattr(self, name, value)
        self._format = get_format(state["_format"])
        self._machine.bind(self._format.nodes(self._start, self._guards)[0])


class IdStream:
    """A parse that is fed with token ids.  What it says of places are offsets in the text of all ids."""

    def __init__(self, stream: Stream, detokenizer: Detokenizer) -> None:
        self._stream, self._detokenizer = stream, detokenizer

    def feed(self, ids: int | Iterable[int]) -> list[Event]:
        """Take more ids, or one; gives what is new.  Under `policy="strict"` raises ParseError."""
        return self._stream.feed(self._detokenizer.feed((ids,) if isinstance(ids, int) else ids))

    def close(self, finish_reason: FinishReason | None = None) -> list[Event]:
        """The completion is over; gives the last events.  `finish_reason` is why the engine stopped."""
        rest = self._detokenizer.close()
        events = self._stream.feed(rest) if rest else []
        return events + self._stream.close(finish_reason)

    @property
    def reply(self) -> Reply:
        """What the completion says.  Raises CodecError before `close`."""
        return self._stream.reply

    def fork(self) -> "IdStream":
        """An independent stream that goes on from here.  The tokenizer and the tools are shared."""
        return IdStream(self._stream.fork(), self._detokenizer.fork())

    __copy__ = fork

    def to_json(self) -> str:
        """The state as JSON text; `resume` of its format goes on from it, with the tokenizer."""
        from .snapshot import with_detokenizer

        return with_detokenizer(self._stream.to_json(), self._detokenizer.state())
