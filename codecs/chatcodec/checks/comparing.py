"""What of a conversation does not come back from its text, and which loss names it.

Rules of this module:

* two conversations are compared field by field, under the paths that losses have; a difference carries the codes of the
  losses that name it, and one that no loss names has none: it is *unexplained*;
* ids are names for pairs, and any names will do: what is compared is which call a result answers;
* text parts of one message are one text, keys beside those of the chat shape are a data set's own, and a declaration says
  the same whatever the order of its keys, those of `properties` excepted;
* a forged marker (`control_token_in_…`) spoils all that is written behind it: from there on differences are its own.
"""

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import Loss
from ..messages import IDLE_KEYS, Conversation, Tool
from ..wire import Rendered

#: The text forges a marker: what is written from that place on may be read as something else.
FORGED = frozenset(("control_token_in_content", "control_token_in_argument"))
#: Codes of messages that leave no trace of their own.
GONE = frozenset(("message_dropped", "message_rendered_empty", "system_merged"))
#: Losses of the pairs of calls and results; they reach over all results of a turn.
PAIRING = frozenset(("tool_result_order", "orphan_tool_result", "duplicate_tool_call_id"))
#: Losses that name what no field shows: the ids are another's, the rest is about options.
UNSEEN = frozenset(("tool_call_id_dropped", "option_ignored", "ends_with_assistant"))
ROLES = ("system", "user", "assistant", "tool")
NOTHING = "(nothing)"  #: stands for a value that is not there, where JSON stands otherwise

_CALL = re.compile(r"\.tool_calls\[\d+\]\.function\.arguments(?=\.)")
_NULLABLE = frozenset(("string", "number", "integer", "boolean"))


class Difference(NamedTuple):
    """A field that came back otherwise: what was given and what was read, as JSON or `(nothing)`, and the losses that name it."""

    path: str
    given: str
    read: str
    codes: tuple[str, ...]


def differences(rendered: Rendered, read: Conversation) -> list[Difference]:
    """Where a conversation, as it was rendered, and what was read back from the text part ways."""
    losses = rendered.losses
    spoilt = forged(losses)  # texts that stand before the tools may forge the end of theirs
    in_tools = [found._replace(codes=found.codes or spoilt) for found in _tool_differences(rendered._tools, read.tools or [], losses)]
    return [*in_tools, *_message_differences(rendered._messages, read, losses)]


def forged(losses: Iterable[Loss]) -> tuple[str, ...]:
    """The codes of the losses that make a text hold the format's own markers."""
    return tuple(sorted({loss.code for loss in losses} & FORGED))


def shown(value: Any) -> str:
    """A value as JSON, so that 1, 1.0 and true are three values."""
    return json.dumps(value, ensure_ascii=False, default=str)


# ------------------------------------------------------------------------------------------------------------- messages


class _Turn(NamedTuple):
    """A message to compare: its path, the message itself, and the result's pairing where it is one."""

    path: str
    message: Mapping[str, Any]
    call: tuple[int, int] | None
    call_name: str | None
    block: int


def _message_differences(given: Sequence[Mapping[str, Any]], back: Conversation, losses: Sequence[Loss]) -> Iterator[Difference]:
    by_place = _by_message(losses)
    gone = {loss.path for loss in losses if loss.code in GONE}
    yield from _not_in_place(given, losses)
    moved = {loss.code for loss in losses} & {"system_hoisted", "system_merged", "message_dropped"}
    before = [turn for turn in _turns(given) if turn.path not in gone]
    after = list(_turns([dict(message) for message in back.messages]))
    if moved:
        # what separates two blocks of results that stood apart is no message of the conversation
        after = [turn for turn in after if turn.message["role"] in ROLES]
    if "system_hoisted" in moved:
        before, after = _systems_first(before), _systems_first(after)
    pairing: dict[int, set[str]] = {}
    for turn in before:
        pairing.setdefault(turn.block, set()).update(loss.code for loss in by_place.get(turn.path, ()) if loss.code in PAIRING)
    merged = {"system_merged"} & moved
    spoilt = forged(loss for loss in losses if not loss.path.startswith("messages["))
    for one, other in zip(before, after, strict=False):
        near = by_place.get(one.path, [])
        spoilt = spoilt or forged(near)
        for found in _field_differences(one, other, near, pairing[one.block], merged):
            yield found._replace(codes=found.codes or spoilt)
        if one.message["role"] != other.message["role"]:
            break
    if len(before) != len(after):
        left_out = {loss.code for loss in losses if loss.code in GONE}  # a text may need a message, so that an empty one is read
        blank = all(turn.message.get("content") in (None, "") and not turn.message.get("tool_calls") for turn in after)
        codes = spoilt or (tuple(sorted(left_out)) if blank and not before else ())
        yield Difference("messages", f"{len(before)} messages", f"{len(after)} messages", codes)


def _not_in_place(given: Sequence[Mapping[str, Any]], losses: Sequence[Loss]) -> Iterator[Difference]:
    """The messages that losses say are gone, or stand elsewhere."""
    told: dict[str, set[str]] = {}
    for loss in losses:
        if loss.code in GONE or loss.code == "system_hoisted":
            told.setdefault(loss.path, set()).add(loss.code)
    for index, message in enumerate(given):
        if codes := told.get(f"messages[{index}]"):
            said = shown({"role": message["role"], "content": message.get("content")})
            yield Difference(f"messages[{index}]", said, NOTHING if codes & GONE else "(before all others)", tuple(sorted(codes)))


def _by_message(losses: Iterable[Loss]) -> dict[str, list[Loss]]:
    found: dict[str, list[Loss]] = {}
    for loss in losses:
        if loss.path.startswith("messages[") and loss.code not in UNSEEN:
            found.setdefault(loss.path[: loss.path.index("]") + 1], []).append(loss)
    return found


def _systems_first(turns: list[_Turn]) -> list[_Turn]:
    return sorted(turns, key=lambda turn: turn.message["role"] != "system")


def _turns(messages: Sequence[Mapping[str, Any]]) -> Iterator[_Turn]:
    """The messages with what their ids say: which call of which assistant turn a result answers."""
    pending: dict[Any, deque[tuple[int, str]]] = {}
    turn = -1
    for index, message in enumerate(messages):
        call, name = None, None
        if message["role"] == "assistant":
            turn += 1
            pending = {}
            for position, made in enumerate(message.get("tool_calls") or ()):
                pending.setdefault(made.id, deque()).append((position, made.name))
        elif message["role"] == "tool" and message.get("tool_call_id") is not None:
            if waiting := pending.get(message["tool_call_id"]):
                position, name = waiting.popleft()
                call = turn, position
        yield _Turn(f"messages[{index}]", message, call, name, turn)


def _fields(turn: _Turn) -> Iterator[tuple[str, Any]]:
    """What a text should give back of a message, in the order in which formats write it."""
    path, message = turn.path, turn.message
    yield f"{path}.role", message["role"]
    yield f"{path}.reasoning_content", message.get("reasoning_content")
    yield f"{path}.content", _content(message.get("content"))
    yield f"{path}.name", message.get("name") or turn.call_name
    if message["role"] == "tool":
        yield f"{path}.tool_call_id", turn.call and f"call {turn.call[1]} of turn {turn.call[0]}"
    calls = message.get("tool_calls") or ()
    for number, call in enumerate(calls):
        where = f"{path}.tool_calls[{number}].function"
        yield f"{where}.name", call.name
        yield f"{where}.arguments", list(call.arguments)
        for key, value in call.arguments.items():
            yield f"{where}.arguments.{key}", value
    yield f"{path}.tool_calls", len(calls)


def _content(content: Any) -> Any:
    """Content as one text, or as texts and media where there are media."""
    if content is None or isinstance(content, str):
        return content
    joined: list[Any] = []
    for part in content:
        text = part if isinstance(part, str) else part.get("text") if set(part) <= {"type", "text"} else None
        if not isinstance(text, str):
            joined.append(part)
        elif joined and isinstance(joined[-1], str):
            joined[-1] += text
        elif text:
            joined.append(text)
    return "".join(joined) if all(isinstance(part, str) for part in joined) else joined


def _field_differences(one: _Turn, other: _Turn, losses: Sequence[Loss], pairing: set[str], merged: set[str]) -> Iterator[Difference]:
    after = {path[len(other.path) :]: shown(value) for path, value in _fields(other)}
    at = _codes_by_path(losses)
    for path, value in _fields(one):
        field = path[len(one.path) :]
        before, back = shown(value), after.get(field, NOTHING)
        if before == back:
            continue
        codes = set(at.get(path, ()))
        if field == ".content":
            codes |= {loss.code for loss in losses if loss.path.startswith(f"{path}[")}
        elif (call := _CALL.match(field)) is not None:  # of all arguments as one, but for the order of their names
            codes |= at.get(f"{one.path}{call[0]}", set()) - {"key_order_lost"}
        if one.message["role"] == "tool":
            codes |= pairing  # results that are paired by position alone may have changed places, contents and names with them
        if field == ".content" and one.message["role"] == "system" and isinstance(value, str) and value in (json.loads(back) or ""):
            codes |= merged
        if field == ".reasoning_content":  # a template that cuts reasoning out of content writes it as reasoning
            codes |= {loss.code for loss in losses if loss.code == "content_lost"}
        yield Difference(path, before if value is not None else NOTHING, NOTHING if back == "null" else back, tuple(sorted(codes)))


def _codes_by_path(losses: Iterable[Loss]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for loss in losses:
        found.setdefault(loss.path, set()).add(loss.code)
    return found


def _outer(path: str) -> Iterator[str]:
    """The paths of all that holds what is at a path, itself first."""
    yield path
    for end in range(len(path) - 1, 0, -1):
        if path[end] in ".[":
            yield path[:end]


# ---------------------------------------------------------------------------------------------------------------- tools


def _tool_differences(given: Sequence[Tool], read: Sequence[Tool], losses: Iterable[Loss]) -> Iterator[Difference]:
    named = [loss for loss in losses if loss.path.startswith("tools[")]
    at = _codes_by_path(named)
    under: dict[str, set[str]] = {}
    for loss in named:
        for path in _outer(loss.path):
            under.setdefault(path, set()).add(loss.code)
    if len(given) != len(read):
        yield Difference("tools", f"{len(given)} tools", f"{len(read)} tools", tuple(sorted({loss.code for loss in named})))
    for index, (tool, back) in enumerate(zip(given, read, strict=False)):
        path = f"tools[{index}]"
        for place, before, after in _apart(path, _said(tool), _said(back)):
            codes = under.get(place, set()).union(*(at.get(outer, ()) for outer in _outer(place)))
            yield Difference(place, before, after, tuple(sorted(codes)))


def _said(value: Any, names: bool = False) -> Any:
    """A declaration without what says nothing, and with one of the two spellings of a type that may be null.

    `names`: the keys are names that the tool's author chose, so none of them is a keyword.
    """
    if isinstance(value, Mapping):
        if names:
            return {key: _said(inner) for key, inner in value.items()}
        if value.get("nullable") is True and value.get("type") in _NULLABLE and not value.get("enum"):
            value = {**{key: inner for key, inner in value.items() if key != "nullable"}, "type": [value["type"], "null"]}
        return {key: _said(inner, key == "properties") for key, inner in value.items() if inner or key not in IDLE_KEYS}
    return [_said(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _apart(path: str, one: Any, other: Any) -> Iterator[tuple[str, str, str]]:
    """The places where two JSON values differ, the outermost of each; a list of other length is one place."""
    pending = [(path, one, other)]
    while pending:
        path, one, other = pending.pop()
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            for key in [*one, *(key for key in other if key not in one)][::-1]:
                inner = f"{path}.{key}"
                if key not in one:
                    yield inner, NOTHING, shown(other[key])
                elif key not in other:
                    yield inner, shown(one[key]), NOTHING
                else:
                    pending.append((inner, one[key], other[key]))
            if path.endswith(".properties") and list(one) != list(other) and set(one) == set(other):
                yield path, shown(list(one)), shown(list(other))
        elif isinstance(one, list) and isinstance(other, list) and path.endswith(".required") and sorted(map(str, one)) == sorted(other):
            continue  # the order of names that are required says nothing
        elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            pending += [(f"{path}[{index}]", *pair) for index, pair in enumerate(zip(one, other, strict=True))][::-1]
        elif shown(one) != shown(other):
            yield path, shown(one), shown(other)
