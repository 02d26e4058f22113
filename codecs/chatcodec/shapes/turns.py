"""What conversations of plain turns have in common: a role and a text each, calls as JSON within a text.

Rules of this module:

* calls have no ids: reading numbers them `call_0`, `call_1`… and gives results the ids of the calls before them, in order;
* what a plain turn cannot hold is named by the codes of `errors.LOSSES`; further keys of a message stay with its turn.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import Loss
from ..losses import pairing_losses
from ..messages import Call
from .chat import Chat, RowError, is_text, joined_parts, json_text, ordered_results

MEDIA = {"image": "<image>", "video": "<video>", "audio": "<audio>"}  #: what stands for media in a text
#: What a message is made of; any other key is the data set's own.
STRUCTURE = frozenset(("role", "content", "reasoning_content", "tool_calls", "tool_call_id"))


@dataclass(slots=True)
class Numbering:
    """The ids that are given to calls and results while reading."""

    pending: deque[str] = field(default_factory=deque)  #: calls of the last turn that have no result yet
    calls: int = 0  #: how many the last turn had
    ids: int = 0

    def new(self) -> str:
        """An id that no other call has."""
        self.ids += 1
        return f"call_{self.ids - 1}"

    def called(self, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The calls of a turn, with ids."""
        self.calls = len(calls)
        self.pending = deque(self.new() for _ in calls)
        return [{"id": call_id, **call} for call_id, call in zip(self.pending, calls, strict=True)]

    def answered(self) -> str:
        """The id for the next result."""
        return self.pending.popleft() if self.pending else self.new()

    @property
    def unanswered(self) -> int:
        """How many calls wait, as long as none has been answered."""
        return self.calls if self.calls == len(self.pending) else 0


def prepare(chat: Chat) -> None:
    """Make ready for a shape of plain turns: texts for lists of them, results in order; name what no turn can hold."""
    joined_parts(chat, "messages")
    ordered_results(chat, "messages")
    chat.losses += _losses(chat)


def _losses(chat: Chat) -> Iterator[Loss]:
    paired: list[dict[str, Any]] = []
    for index, message in enumerate(chat.messages):
        path = f"messages[{index}]"
        role = message["role"]
        if role not in ("system", "user", "assistant", "tool"):
            raise RowError("unknown_role", f"{path}.role", f"no turn has the role {role!r}; there are system, user, assistant and tool")
        calls = message.get("tool_calls", ())
        if "reasoning_content" in message:
            code = "reasoning_dropped" if message["reasoning_content"] else "null_content"
            yield Loss(code, f"{path}.reasoning_content", str(index))
        if message.get("content") is None and not calls:
            yield Loss("null_content", f"{path}.content", str(index))
        if message.get("content") == "" and calls:
            yield Loss("null_content", f"{path}.content", str(index))
        if calls and role != "assistant":
            raise RowError("bad_message", f"{path}.tool_calls", f"a turn of the role {role!r} has no tool calls")
        for number, call in enumerate(calls):
            yield from call_losses(call, f"{path}.tool_calls[{number}]")
        if role in ("assistant", "tool"):
            made = [Call(call.get("id"), call["function"]["name"], {}) for call in calls]
            paired.append({"role": role, "tool_calls": made, "tool_call_id": message.get("tool_call_id")})
        else:
            paired.append({"role": role})
    for loss in pairing_losses(paired):
        if chat.own_ids or loss.code != "tool_call_id_dropped":
            yield loss


def call_losses(call: Mapping[str, Any], path: str) -> Iterator[Loss]:
    """What a call holds beside an id, a name and arguments."""
    if len(call) > 3 or call.get("type", "function") != "function" or len(call["function"]) > 2:
        for key, value in call.items():
            if key not in ("id", "function") and (key, value) != ("type", "function"):
                yield Loss("content_dropped", f"{path}.{key}", key)
        for key in call["function"]:
            if key not in ("name", "arguments"):
                yield Loss("content_dropped", f"{path}.function.{key}", key)


def text_of(message: Mapping[str, Any], index: int, chat: Chat) -> str:
    """The content of a message as text; media are named where only a word stands for them."""
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for number, part in enumerate(content):
        if is_text(part):
            texts.append(part["text"])
            continue
        kind = next((kind for kind in MEDIA if kind in str(part.get("type"))), None)
        if kind is None:
            raise RowError("media_not_supported", f"messages[{index}].content[{number}]", f"no turn holds {part.get('type')!r} parts")
        texts.append(MEDIA[kind])
        chat.losses.append(Loss("media_dropped", f"messages[{index}].content[{number}]", str(index)))
    return "".join(texts)


def call_json(call: Mapping[str, Any], path: str, chat: Chat) -> str:
    """A call as JSON text."""
    function = call["function"]
    name, arguments = json_text(function["name"], f"{path}.function.name"), function["arguments"]
    return f'{{"name": {name}, "arguments": {json_text(arguments, f"{path}.function.arguments", chat.losses)}}}'


def own_keys(message: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that a message has beside those of the shape."""
    return {key: value for key, value in message.items() if key not in STRUCTURE} if not message.keys() <= STRUCTURE else {}
