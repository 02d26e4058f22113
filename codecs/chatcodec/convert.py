"""Rows of data sets from one shape to another.

A shape is `openai`, `sharegpt`, `hermes`, or the name of a format: its wire text, in a column of its own.

Rules of this module:

* `convert_row` is the whole of a conversion; it keeps no state, so rows can be converted in any order and by many processes;
* a row that cannot be converted gives a refusal that says where and why; no row raises;
* columns that are no part of the conversation are kept as they are, and never written over;
* nothing is lost in silence: losses and repairs name what the new row does not say as the old one did.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from .errors import CodecError, Loss, ParseError, RenderError, nearest
from .format import Format, Option
from .formats import get_format, list_formats
from .messages import MESSAGE_KEYS
from .shapes.chat import Chat, Columns, Row, RowError, Written, decoded, joined_parts, ordered_results, read_openai, write_openai
from .shapes.hermes import read_hermes, write_hermes
from .shapes.repairs import Repair
from .shapes.sharegpt import read_sharegpt, write_sharegpt
from .shapes.turns import call_losses

__all__ = ["REFUSALS", "SHAPES", "Columns", "Outcome", "Plan", "Refusal", "Repair", "convert_row", "plan"]

SHAPES: tuple[str, ...] = ("openai", "sharegpt", "hermes")

#: Why a row is refused, beside the reasons of a RenderError (`errors.REFUSALS`).
REFUSALS = frozenset(("bad_row", "missing_column", "column_taken", "not_a_prompt", "too_deep"))

_COLUMNS = Columns()
_READERS = {"openai": read_openai, "sharegpt": read_sharegpt, "hermes": read_hermes}
_WRITERS = {"openai": write_openai, "sharegpt": write_sharegpt, "hermes": write_hermes}
#: What can be chosen for shapes that are no format's.
_OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {"openai": {"arguments": ("json", "object")}, "sharegpt": {}, "hermes": {}}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a conversion is to do: from which shape to which, in which columns, with which options of the target.

    Options are those of the target format's template; `openai` has `arguments`: `"json"` (JSON text, the default) or
    `"object"`.  Made by `plan`, which checks it.  It can be pickled.
    """

    source: str
    target: str
    columns: Columns = _COLUMNS
    options: Mapping[str, Any] = field(default_factory=dict)


class Refusal(NamedTuple):
    """Why a row could not be converted: a code of `errors.REFUSALS` or `REFUSALS`, the place, the reason in words."""

    code: str
    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason} [{self.code}]"


@dataclass(slots=True)
class Outcome:
    """What came of a row: the new row or a refusal, what the new row does not give back, and what was put right."""

    row: dict[str, Any] | None
    losses: list[Loss] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    refusal: Refusal | None = None


_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


def plan(source: str, target: str, *, columns: Columns = _COLUMNS, options: Mapping[str, Any] = _NO_OPTIONS) -> Plan:
    """A checked plan.  Raises CodecError for a shape, a column or an option that there is not, with near misses."""
    known = (*SHAPES, *list_formats())
    for name in (source, target):
        if name not in known:
            raise CodecError(f"unknown shape {name!r}{nearest(str(name), known)}; the shapes are {', '.join(known)}")
    given = dict(options)
    if target in _OPTIONS:
        for name, value in given.items():
            allowed = _OPTIONS[target].get(name)
            if allowed is None:
                there = ", ".join(_OPTIONS[target]) or "none"
                raise CodecError(f"{target}: unknown option {name!r}{nearest(name, _OPTIONS[target])}; there are {there}")
            if value not in allowed:
                raise CodecError(f"{target}: {name} must be {' or '.join(map(repr, allowed))}, not {value!r}")
    else:
        try:
            get_format(target).render([{"role": "user", "content": "?"}], **given)
        except RenderError as error:
            if error.path.startswith("options"):
                raise
    return Plan(source, target, columns, given)


def convert_row(row: Mapping[str, Any], plan: Plan) -> Outcome:
    """Convert one row.  Never raises for a bad row: the outcome has a refusal instead."""
    try:
        if not isinstance(row, Mapping):
            raise RowError("bad_row", "", f"a row must be an object, not {type(row).__name__}")
        reader, writer = _READERS.get(plan.source), _WRITERS.get(plan.target)
        chat = reader(row, plan.columns) if reader is not None else _read_text(row, plan)
        written = writer(chat, plan.columns, plan.options) if writer is not None else _write_text(chat, row, plan)
        return Outcome(_merged(row, chat.used, written), chat.losses, chat.repairs)
    except RowError as error:
        return Outcome(None, refusal=Refusal(error.code, error.path, error.reason))
    except RenderError as error:
        return Outcome(None, refusal=Refusal(error.code, error.path, error.detail))
    except ParseError as error:
        return Outcome(None, refusal=Refusal("not_a_prompt", plan.columns.text, str(error)))
    except RecursionError:
        return Outcome(None, refusal=Refusal("too_deep", "", "a value that is nested too deep"))


def _merged(row: Row, used: set[str], written: Written) -> dict[str, Any]:
    """The row with the columns of the old shape gone and those of the new one where the first of them stood."""
    merged: dict[str, Any] = {}
    for name, value in row.items():
        if name in used:
            if written.keys() - merged.keys():
                merged |= written
        elif name not in written:
            merged[name] = value
        elif value is not None and value != written[name]:
            raise RowError("column_taken", str(name), f"the row has a column {name!r} already; name another one for the new shape")
    return merged | {name: value for name, value in written.items() if name not in merged}


# ----------------------------------------------------------------------------------------------------------- wire text


def _read_text(row: Row, plan: Plan) -> Chat:
    name = plan.columns.text
    text = row.get(name)
    if text is None:
        there = ", ".join(map(repr, row)) or "none"
        raise RowError("missing_column", name, f"the row has no column {name!r}{nearest(name, map(str, row))}; it has {there}")
    if not isinstance(text, str):
        raise RowError("content_not_string", name, f"{name} must be a string, not {type(text).__name__}")
    read = get_format(plan.source).parse_prompt(text)
    messages = [_without_null_content(message.model_dump()) for message in read.messages]
    options = {key: _plain(value) for key, value in read.options.items()}
    return Chat(messages, read.tools, options, own_ids=False, used={name})


def _without_null_content(message: dict[str, Any]) -> dict[str, Any]:
    if message["content"] is None:
        del message["content"]
    return message


def _plain(value: Any) -> Any:
    """An option's value as JSON can hold it."""
    return value.isoformat() if isinstance(value, date) else value


def _write_text(chat: Chat, row: Row, plan: Plan) -> Written:
    fmt = get_format(plan.target)
    joined_parts(chat, "messages", blocks=fmt.text_blocks)
    ordered_results(chat, "messages")
    if plan.source not in list_formats():
        _read_options(row, plan.columns.options, chat)
    options = _options(fmt, chat, plan)
    rendered = fmt.render(chat.messages, tools=chat.tools, **options)
    losses = rendered.losses
    if not chat.own_ids:
        losses = [loss for loss in losses if loss.code != "tool_call_id_dropped"]
    chat.losses += losses
    _unwritten(chat)
    return {plan.columns.text: rendered.text}


def _read_options(row: Row, name: str, chat: Chat) -> None:
    """The options that a conversion from wire text has left in a column; a column that holds anything else is not ours."""
    given = row.get(name)
    if isinstance(given, str) and given.startswith("{"):
        try:
            given = decoded(given, name, "bad_option")
        except RowError:
            return
    if isinstance(given, Mapping) and given and all(key in _known_options() for key in given):
        chat.used.add(name)
        chat.options = dict(given)


@cache
def _known_options() -> frozenset[str]:
    return frozenset(option for name in list_formats() for option in get_format(name).options)


def _options(fmt: Format, chat: Chat, plan: Plan) -> dict[str, Any]:
    """The row's own options, as far as the target has them, and above them those of the plan."""
    chosen = {}
    for name, value in chat.options.items():
        option = fmt.options.get(name)
        if value is None and (option is None or type(None) not in option.types):
            continue  # padding
        if name in plan.options or option is None or not _fits(fmt, name, value := _typed(option, value)):
            chat.losses.append(Loss("option_ignored", f"options.{name}", name))
        else:
            chosen[name] = value
    return {**chosen, **plan.options}


def _typed(option: Option, value: Any) -> Any:
    """A day that went through JSON as a day again."""
    if isinstance(value, str) and date in option.types and str not in option.types:
        try:
            return date.fromisoformat(value) if len(value) == 10 else datetime.fromisoformat(value)
        except ValueError:
            return value
    return value


def _fits(fmt: Format, name: str, value: Any) -> bool:
    try:
        fmt.render([{"role": "user", "content": "?"}], **{name: value})
    except RenderError as error:
        return not error.path.startswith("options")
    return True


def _unwritten(chat: Chat) -> None:
    """Name what a wire text does not hold of a message: keys that are the data set's own."""
    for index, message in enumerate(chat.messages):
        if not message.keys() <= MESSAGE_KEYS:
            chat.losses += [Loss("content_dropped", f"messages[{index}].{key}", str(index)) for key in message if key not in MESSAGE_KEYS]
        for number, call in enumerate(message.get("tool_calls", ())):
            chat.losses += call_losses(call, f"messages[{index}].tool_calls[{number}]")
