"""Whether conversations come back from their text: one row checked, and many rows counted.

Rules of this module:

* a row is rendered, its text read back and rendered again; what is different carries the codes of the losses that name it,
  and what no loss names is `unexplained`;
* a row is *exact* if nothing came back otherwise (ids are names, any will do), *lossy* if losses name all that did,
  *unexplained* if they do not, *refused* if the format cannot write it;
* a turn is *append-only* if the text up to it begins the text of the whole, so that what was computed for it can be kept;
* memory does not grow with the data: a report counts, and keeps a few rows of every kind as examples.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ..errors import CodecError, Loss, ParseError, RenderError, locate, parting
from ..format import Format
from ..messages import Conversation, Message, Tool
from ..wire import ARGUMENT, Rendered
from .comparing import Difference, differences, forged

Outcome = Literal["exact", "lossy", "unexplained", "refused"]
OUTCOMES: tuple[Outcome, ...] = ("exact", "lossy", "unexplained", "refused")
UNEXPLAINED = "unexplained"
REWRITTEN = "not_append_only"

#: Of a row with more assistant turns than this so many are rendered by themselves, evenly spread: a render costs its length,
#: and all of them would cost the square of it.
MOST_TURNS = 64
EXAMPLES = 2  #: rows kept for every code
AROUND = 40  #: characters shown on each side of a place

_INDEX = re.compile(r"\[\d+\]")
_ARGUMENT = re.compile(r"(\.function\.arguments)\..*", re.DOTALL)
_KEYWORDS = "type|description|enum|items|properties|required|default|anyOf|oneOf|allOf"
_PROPERTY = re.compile(rf"(\.properties)\..*?(?=\.(?:{_KEYWORDS})\b|$)", re.DOTALL)


class Rewritten(NamedTuple):
    """An assistant turn whose own text does not begin the whole: which message, where they part, and both texts from there."""

    message: int
    position: int
    alone: str
    whole: str


@dataclass(slots=True)
class Checked:
    """What checking one row found.  `error` says why it was refused; then there is no `rendered`."""

    outcome: Outcome
    rendered: Rendered | None = None
    read: Conversation | None = None
    losses: list[Loss] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    error: CodecError | None = None
    turns: int = 0  #: assistant turns that were looked at
    passed_over: int = 0  #: assistant turns that were not, because there are too many
    rewritten: list[Rewritten] = field(default_factory=list)

    @property
    def unexplained(self) -> list[Difference]:
        """The differences that no loss names."""
        return [difference for difference in self.differences if not difference.codes]

    @property
    def labels(self) -> set[str]:
        """What the row is an example of: its outcome, the codes of its losses, and whether turns are rewritten."""
        found: set[str] = {self.outcome, *(loss.code for loss in self.losses)}
        return found | {REWRITTEN} if self.rewritten else found


def check(
    format: Format,
    messages: Sequence[Mapping[str, Any] | Message],
    tools: Sequence[Tool] | None = None,
    **options: Any,
) -> Checked:
    """Render a conversation, read it back, and tell what is different.  Raises nothing: a refusal is an outcome."""
    try:
        return _checked(format, messages, tools, options)
    except CodecError as error:
        return Checked("refused", error=error)
    except RecursionError:
        return Checked("refused", error=RenderError(format.name, "messages", "bad_message", "the values nest too deeply"))


def _checked(
    format: Format, messages: Sequence[Mapping[str, Any] | Message], tools: Sequence[Tool] | None, options: Mapping[str, Any]
) -> Checked:
    rendered = format.render(messages, tools=tools, **options)
    losses = rendered.losses
    made = Checked("exact", rendered, losses=losses)
    try:
        made.read = format.parse_prompt(rendered.text)
        made.differences = [*differences(rendered, made.read), *_text_differences(format, rendered, made.read, losses)]
    except ParseError as error:
        text = str(error).partition("\n")[0]
        made.differences = [Difference("text", _around(rendered.text, error.position), f"unreadable: {text}", forged(losses))]
    made.outcome = "unexplained" if made.unexplained else "lossy" if made.differences else "exact"
    _check_turns(format, made, list(messages), tools, options)
    return made


def _text_differences(format: Format, rendered: Rendered, read: Conversation, losses: Sequence[Loss]) -> list[Difference]:
    """That what was read does not render to the text that it was read from."""
    try:
        again = format.render(read.messages, tools=read.tools, **read.options).text
    except CodecError as error:
        return [Difference("text", _around(rendered.text, 0), f"unrenderable: {error}", forged(losses))]
    if again == rendered.text:
        return []
    place = parting(rendered.text, again)
    return [Difference("text", _around(rendered.text, place), _around(again, place), forged(losses) or _of_value(rendered, place, losses))]


def _of_value(rendered: Rendered, place: int, losses: Sequence[Loss]) -> tuple[str, ...]:
    """The loss of an argument's type, if it is within an argument that two texts part: `1.0` for an integer is read as 1."""
    span = next((span for span in rendered.spans if span.start <= place <= span.end and span.kind == ARGUMENT), None)
    if span is None:
        return ()
    within = f"messages[{span.message}].tool_calls["
    return ("value_type_lost",) if any(code == "value_type_lost" and path.startswith(within) for code, path, _ in losses) else ()


def _check_turns(
    format: Format, made: Checked, messages: Sequence[Mapping[str, Any] | Message], tools: Sequence[Tool] | None, options: Mapping[str, Any]
) -> None:
    assert made.rendered is not None
    alone = {name: value for name, value in options.items() if name != "add_generation_prompt"}
    turns = [index for index, message in enumerate(made.rendered._messages) if message["role"] == "assistant"]
    if not turns:
        return
    whole = format.render(messages, tools=tools, **alone).text if options.get("add_generation_prompt") else made.rendered.text
    count = min(len(turns), MOST_TURNS)
    looked_at = [turns[(number + 1) * len(turns) // count - 1] for number in range(count)]
    made.turns, made.passed_over = count, len(turns) - count
    for index in looked_at:
        if index == len(messages) - 1:
            continue  # it is the whole
        try:
            text = format.render(messages[: index + 1], tools=tools, **alone).text
        except CodecError as error:
            made.rewritten.append(Rewritten(index, 0, f"refused: {error}", whole[: 2 * AROUND]))
            continue
        if not whole.startswith(text):
            place = parting(text, whole)
            made.rewritten.append(Rewritten(index, place, text[place : place + AROUND], whole[place : place + AROUND]))


def _around(text: str, place: int) -> str:
    line, column, _ = locate(text, place)
    return f"line {line}, column {column}: {text[max(0, place - AROUND) : place + AROUND]!r}"


# --------------------------------------------------------------------------------------------------------------- many rows


class Kept(NamedTuple):
    """A row kept as an example: its place in the data, and what was found."""

    row: str
    checked: Checked


@dataclass(slots=True)
class Report:
    """What checking many rows found.

    `losses` and `differences` count by code and by the path without numbers and names (`messages[].content`); a difference
    that no loss names has the code `unexplained`.  `refusals` counts by code and path, `first` is the first row of each code.
    """

    format: str
    rows: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    losses: Counter[tuple[str, str]] = field(default_factory=Counter)
    rows_by_loss: Counter[tuple[str, str]] = field(default_factory=Counter)
    differences: Counter[tuple[str, str]] = field(default_factory=Counter)
    refusals: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    turns: int = 0
    rewritten: int = 0
    passed_over: int = 0
    first: dict[str, str] = field(default_factory=dict)
    examples: list[Kept] = field(default_factory=list)
    _kept: Counter[str] = field(default_factory=Counter)

    def add(self, checked: Checked, row: str = "") -> None:
        """Count one more row, and keep it if there are few like it.  `row` is its place in the data, else its number from 1."""
        self.rows += 1
        row = row or str(self.rows)
        self.outcomes[checked.outcome] += 1
        self.losses.update((loss.code, pattern(loss.path)) for loss in checked.losses)
        self.rows_by_loss.update({(loss.code, pattern(loss.path)) for loss in checked.losses})
        self.turns += checked.turns
        self.rewritten += len(checked.rewritten)
        self.passed_over += checked.passed_over
        for difference in checked.differences:
            self.differences.update((code, pattern(difference.path)) for code in difference.codes or (UNEXPLAINED,))
        if checked.error is not None:
            self.refusals[refusal(checked.error)] += 1
        labels = checked.labels
        for label in labels:
            self.first.setdefault(label, row)
        if any(self._kept[label] < EXAMPLES for label in labels):
            self._kept.update(labels)
            self.examples.append(Kept(row, checked))

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data, for JSON."""
        return {
            "format": self.format,
            "rows": self.rows,
            **{outcome: self.outcomes[outcome] for outcome in OUTCOMES},
            "append_only": {"turns": self.turns, "rewritten": self.rewritten, "passed_over": self.passed_over},
            "losses": [
                {"code": code, "path": path, "count": count, "rows": self.rows_by_loss[code, path], "first_row": self.first[code]}
                for (code, path), count in _ranked(self.losses)
            ],
            "differences": [{"code": code, "path": path, "count": count} for (code, path), count in _ranked(self.differences)],
            "refusals": [{"code": code, "path": path, "reason": reason, "count": n} for (code, path, reason), n in _ranked(self.refusals)],
            "unexplained_rows": [
                {"row": row, "differences": [difference._asdict() for difference in checked.unexplained]}
                for row, checked in self.examples
                if checked.unexplained
            ],
            "refused_rows": [{"row": row, "error": str(checked.error)} for row, checked in self.examples if checked.error is not None],
            "rewritten_rows": [
                {"row": row, "turns": [turn._asdict() for turn in checked.rewritten]} for row, checked in self.examples if checked.rewritten
            ],
        }


def refusal(error: CodecError) -> tuple[str, str, str]:
    """A refusal's code, the pattern of its path and its reason, to count by."""
    if isinstance(error, RenderError):
        return error.code, pattern(error.path), error.reason
    return "bad_row", "", str(error).partition("\n")[0]


def pattern(path: str) -> str:
    """A path without what differs from row to row: numbers, the names of arguments and of properties."""
    return _PROPERTY.sub(r"\1.*", _ARGUMENT.sub(r"\1.*", _INDEX.sub("[]", path)))


def _ranked(counter: Counter[Any]) -> list[tuple[Any, int]]:
    return sorted(counter.items(), key=lambda item: (-item[1], item[0]))
