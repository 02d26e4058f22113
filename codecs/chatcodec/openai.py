"""Replies and streams in the shapes of OpenAI's chat completions API.

Rules of this module:

* a chunk says what one event says; argument fragments of one call join to its arguments as JSON, `{}` if there are none, and
  nothing that was sent is taken back;
* a call that was begun and then turned out broken or cut off cannot be taken back either: it gets no more fragments, the
  last chunk names it under `dropped_tool_calls` of its choice, and `finish_reason` does not count it.  Who cannot have that
  asks for `whole_calls`, which sends a call only once it is complete;
* the API's types have no reasoning; as most servers do, it is sent as `reasoning_content`.

Source: OpenAI's API reference for chat completions, and the types of the `openai` package.
"""

from collections.abc import Callable, Iterable
from time import time
from typing import Any
from uuid import uuid4

from .events import ArgumentsDelta, ContentDelta, Event, ReasoningDelta, ToolCallDropped, ToolCallEnd, ToolCallStart
from .jsontext import dumps
from .reply import FinishReason, Reply
from .stream import IdStream, Stream

Chunk = dict[str, Any]


def new_call_id() -> str:
    """A fresh id of a tool call."""
    return f"call_{uuid4().hex[:24]}"


def new_completion_id() -> str:
    """A fresh id of a completion."""
    return f"chatcmpl-{uuid4().hex}"


def to_completion(
    reply: Reply,
    *,
    model: str,
    id: str | None = None,
    created: int | None = None,
    call_id: Callable[[], str] = new_call_id,
    usage: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A `chat.completion`.

    `created` is in seconds since 1970, now if not told; `call_id` makes the ids of calls; `usage` is put in as it is.
    """
    said = reply.message
    message: dict[str, Any] = {"role": "assistant", "content": _text(said.content), "refusal": None}
    if said.reasoning_content is not None:
        message["reasoning_content"] = said.reasoning_content
    if said.tool_calls:
        message["tool_calls"] = [
            {"id": call.id or call_id(), "type": "function", "function": _function(call.function.name, call.function.arguments)}
            for call in said.tool_calls
        ]
    completion = _frame("chat.completion", model, id, created)
    completion["choices"] = [{"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish_reason}]
    if usage is not None:
        completion["usage"] = usage
    return completion


def _frame(kind: str, model: str, id: str | None, created: int | None) -> dict[str, Any]:
    return {"id": id or new_completion_id(), "object": kind, "created": int(time()) if created is None else created, "model": model}


def _function(name: str, arguments: Any) -> dict[str, str]:
    return {"name": name, "arguments": dumps(arguments)}


def _text(content: Any) -> str | None:
    """Content as the API has it: one text, whatever blocks it came in."""
    return content if content is None or isinstance(content, str) else "".join(part["text"] for part in content)


class ChunkStream:
    """A stream whose events come as `chat.completion.chunk`s."""

    __slots__ = ("_begun", "_call_id", "_dropped", "_frame", "_held", "_index", "_sent", "_stream", "_whole_calls")

    def __init__(
        self,
        stream: Stream | IdStream,
        *,
        model: str,
        id: str | None = None,
        created: int | None = None,
        index: int = 0,
        call_id: Callable[[], str] = new_call_id,
        whole_calls: bool = False,
    ) -> None:
        """`index` is that of the choice; the others are those of `to_completion`, and `whole_calls` is told above."""
        self._stream = stream
        self._frame = _frame("chat.completion.chunk", model, id, created)
        self._index, self._call_id, self._whole_calls = index, call_id, whole_calls
        self._begun = False
        self._sent = 0  #: whole calls, which are numbered without gaps
        self._held: tuple[str, list[str]] | None = None  #: name and fragments of a call that is held back
        self._dropped: tuple[dict[str, Any], ...] = ()

    def feed(self, piece: Any) -> list[Chunk]:
        """Take more of the completion, text or ids as the stream takes them; gives what is new."""
        events = self._stream.feed(piece)
        return self._chunks(events) if events else []

    def close(self, finish_reason: FinishReason | None = None) -> list[Chunk]:
        """The completion is over; gives the last chunks.  `finish_reason` is why the engine stopped."""
        chunks = self._chunks(self._stream.close(finish_reason))
        if not self._begun:
            chunks.append(self._chunk({}))
        last = self._chunk({}, self.reply.finish_reason)
        if self._dropped:
            last["choices"][0]["dropped_tool_calls"] = [*self._dropped]
        return [*chunks, last]

    @property
    def reply(self) -> Reply:
        """What the completion says.  Raises CodecError before `close`."""
        return self._stream.reply

    def _chunks(self, events: Iterable[Event]) -> list[Chunk]:
        chunks = []
        for event in events:
            kind = type(event)
            if kind is ContentDelta:
                chunks.append(self._chunk({"content": event.text}))  # type: ignore[union-attr]
            elif kind is ReasoningDelta:
                chunks.append(self._chunk({"reasoning_content": event.text}))  # type: ignore[union-attr]
            elif self._whole_calls:
                chunks += self._hold(event)
            elif kind is ArgumentsDelta:
                chunks.append(self._call(event.index, {"function": {"arguments": event.text}}))  # type: ignore[union-attr]
            elif isinstance(event, ToolCallStart):
                chunks.append(self._start(event.index, event.name, ""))
            elif isinstance(event, ToolCallDropped):
                self._dropped += ({"index": event.index, "code": event.code},)
        return chunks

    def _hold(self, event: Event) -> list[Chunk]:
        """Chunks of calls where each is sent when it is complete."""
        if isinstance(event, ToolCallStart):
            self._held = event.name, []
        elif isinstance(event, ArgumentsDelta) and self._held is not None:
            self._held[1].append(event.text)
        elif isinstance(event, ToolCallDropped):
            self._held = None
        elif isinstance(event, ToolCallEnd) and self._held is not None:
            name, fragments = self._held
            self._held = None
            self._sent += 1
            return [self._start(self._sent - 1, name, "".join(fragments))]
        return []

    def _start(self, index: int, name: str, arguments: str) -> Chunk:
        return self._call(index, {"id": self._call_id(), "type": "function", "function": {"name": name, "arguments": arguments}})

    def _call(self, index: int, call: dict[str, Any]) -> Chunk:
        return self._chunk({"tool_calls": [{"index": index, **call}]})

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> Chunk:
        if not self._begun:
            self._begun = True
            delta = {"role": "assistant", **delta}
        return {**self._frame, "choices": [{"index": self._index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]}
