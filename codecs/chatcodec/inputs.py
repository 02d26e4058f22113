"""What several chat templates ask of their messages, content parts and options.

Rules of this module: functions that know no format; what they refuse is told in the words that the format hands in.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from .errors import nearest
from .format import Refuse

EFFORT_TYPES = (str, int, float, type(None))  #: a reasoning effort is a name, a number, or the default

Part = Mapping[str, Any]
KindOf = Callable[[Part], str | None]
"""What a content part is to a format: `text`, a kind of media (`image`), or None for one that it does not know."""


def leading(messages: Sequence[Mapping[str, Any]], roles: Container[str]) -> int:
    """How many messages of these roles open the conversation."""
    return next((index for index, message in enumerate(messages) if message["role"] not in roles), len(messages))


def last_of(messages: Sequence[Mapping[str, Any]], role: str) -> int:
    """Which message is the last one of a role; -1 if there is none."""
    return next((index for index in range(len(messages) - 1, -1, -1) if messages[index]["role"] == role), -1)


def answer_order(messages: Sequence[Mapping[str, Any]], start: int) -> list[int]:
    """The tool results from `start` on, in the order of the calls right before them; those that answer none of these at the end.

    A result stands once for every call that has its id.
    """
    end = next((index for index in range(start, len(messages)) if messages[index]["role"] != "tool"), len(messages))
    calls = messages[start - 1].get("tool_calls") if start and messages[start - 1]["role"] == "assistant" else None
    by_id: dict[Any, list[int]] = {}
    for index in range(start, end):
        by_id.setdefault(messages[index].get("tool_call_id"), []).append(index)
    answers = [index for call in calls or () for index in by_id.get(call.id, ())]
    others = set(range(start, end)).difference(answers)
    return answers + sorted(others)


def parts_of(content: Iterable[Part] | None, path: str, kind_of: KindOf, refuse: Refuse, words: str) -> Iterator[tuple[str, str, str]]:
    """Each part of a content: what it is, its text if it is one, and where it stands.

    Refuses parts that the format does not know, in `words` with the part's type in place of `{}`.
    """
    for number, part in enumerate(content or ()):
        kind, where = kind_of(part), f"{path}[{number}]"
        if kind is None:
            refuse(where, "media_not_supported", f"unknown content part {part.get('type')!r}", words.format(part.get("type")))
        text = part.get("text") if kind == "text" else ""
        if not isinstance(text, str):
            refuse(f"{where}.text", "content_not_string", f"text must be a string, not {type(text).__name__}")
        yield kind, text, where


def named_effort(name: str, efforts: Mapping[str, float], refuse: Refuse, words: str) -> float:
    """The number that a reasoning effort's name stands for."""
    if name not in efforts:
        detail = f"unknown effort {name!r}{nearest(name, efforts)}; there are {', '.join(efforts)}, and numbers"
        refuse("options.reasoning_effort", "bad_option", detail, words)
    return efforts[name]
