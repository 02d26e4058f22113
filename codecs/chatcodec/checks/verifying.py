"""Whether a user's own chat template and a format write the same text, and where and in which feature they part.

Rules of this module:

* a conversation is *same* if both write the same text (and, where the template marks what was generated, mark the same), or
  both refuse it;
* the differences are counted by feature, for generated conversations by the one that they were made for, for data by all
  that they have; the first of each is kept with what stands around it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from ..errors import CodecError, locate, parting
from ..format import Format
from ..messages import Tool
from ..wire import Rendered
from .probes import features_of, probes
from .templates import ChatTemplate, Refused, prepared

Kind = Literal["text", "generation", "format_refuses", "template_refuses"]
Origin = Literal["generated", "data"]

CLOCK = datetime(2026, 3, 14, 15, 9, 26)  #: what both take for now, so that no midnight comes between them
AROUND = 60  #: characters shown on each side of a place


class Parting(NamedTuple):
    """Where a template and a format part over one conversation.

    `kind`: they write different texts, mark different stretches as generated, or only one of them writes at all.  `position`
    is the first character that differs, with its `line` and `column` (from 1) in the format's text, `place` what the format
    writes there.  `ours` and `theirs` are what stands around it in the format's and in the template's text.
    """

    kind: Kind
    position: int
    line: int
    column: int
    place: str
    ours: str
    theirs: str


class Agreed(NamedTuple):
    """That they write the same text, or that both refuse to write one."""

    refused: bool


def compare(
    format: Format,
    template: ChatTemplate,
    messages: Sequence[Any],
    tools: Sequence[Tool] | None = None,
    **options: Any,
) -> Parting | Agreed:
    """Where the two part over a conversation, or that they agree.  Raises nothing: what either raises is what it says."""
    clock = {"now": options.get("now") or CLOCK} if "now" in format.options else {}
    variables = {name: value for name, value in options.items() if name != "now"}
    theirs = template.render(prepared(messages, text_only=not format.parts), tools, now=clock.get("now", CLOCK), **variables)
    ours: Rendered | CodecError
    try:
        ours = format.render(messages, tools=tools, **{**options, **clock})
    except CodecError as error:
        ours = error
    except RecursionError:
        ours = CodecError("the values nest too deeply")
    if isinstance(ours, CodecError):
        if isinstance(theirs, Refused):
            return Agreed(refused=True)
        return Parting("format_refuses", 0, 1, 1, "", str(ours), theirs.text[: 2 * AROUND])
    if isinstance(theirs, Refused):
        return Parting("template_refuses", 0, 1, 1, "", ours.text[: 2 * AROUND], theirs.reason)
    if ours.text != theirs.text:
        return _parting("text", parting(ours.text, theirs.text), ours, theirs.text)
    if template.tracks and ours.generation_spans != theirs.generation_spans:
        edges = zip((*ours.generation_spans, (-1, -1)), (*theirs.generation_spans, (-1, -1)), strict=False)
        mine, other = next(pair for pair in edges if pair[0] != pair[1])
        start = max(0, min(edge for pair in (mine, other) for edge in pair if edge >= 0))
        found = _parting("generation", start, ours, theirs.text)
        return found._replace(ours=f"marked as generated: {_span(mine)}", theirs=f"marked as generated: {_span(other)}")
    return Agreed(refused=False)


def _span(span: tuple[int, int]) -> str:
    return "nothing more" if span[0] < 0 else f"characters {span[0]} to {span[1]}"


def _parting(kind: Kind, position: int, ours: Rendered, theirs: str) -> Parting:
    line, column, _ = locate(ours.text, position)
    span = next((span for span in ours.spans if span.end > position), None)
    where = "the end" if span is None else span.kind.replace("_", " ")
    if span is not None and span.message is not None:
        where += f" of messages[{span.message}]"
    start, end = max(0, position - AROUND), position + AROUND
    return Parting(kind, position, line, column, where, ours.text[start:end], theirs[start:end])


# ------------------------------------------------------------------------------------------------------ many conversations


@dataclass(slots=True)
class Tally:
    """The conversations with one feature: how many there were, how many differ or are refused by both, and the first that differs."""

    cases: int = 0
    differ: int = 0
    refused: int = 0  #: by both, which is no difference
    first: Parting | None = None
    place: str = ""  #: of the first: the row, or the number of the probe
    conversation: dict[str, Any] | None = None  #: of the first, where it was generated


@dataclass(slots=True)
class Verdict:
    """What comparing many conversations found; `features` by origin and feature."""

    format: str
    template: str
    cases: int = 0
    differ: int = 0
    bad_rows: list[tuple[str, str]] = field(default_factory=list)  #: the first rows that are no conversations, and why
    refused_rows: int = 0
    features: dict[tuple[Origin, str], Tally] = field(default_factory=dict)

    def add(
        self, origin: Origin, features: Sequence[str], found: Parting | Agreed, place: str, given: Mapping[str, Any] | None = None
    ) -> None:
        """Count one more conversation."""
        self.cases += 1
        self.differ += isinstance(found, Parting)
        for feature in features:
            tally = self.features.setdefault((origin, feature), Tally())
            tally.cases += 1
            if isinstance(found, Agreed):
                tally.refused += found.refused
                continue
            tally.differ += 1
            if tally.first is None:
                tally.first, tally.place = found, place
                tally.conversation = dict(given) if given is not None else None

    def as_dict(self) -> dict[str, Any]:
        """The verdict as plain data, for JSON."""
        return {
            "format": self.format,
            "template": self.template,
            "cases": self.cases,
            "differ": self.differ,
            "features": [
                {
                    "origin": origin,
                    "feature": feature,
                    "cases": tally.cases,
                    "differ": tally.differ,
                    "refused_by_both": tally.refused,
                    "first": None if tally.first is None else {"at": tally.place, **tally.first._asdict()},
                    "conversation": tally.conversation,
                }
                for (origin, feature), tally in self.features.items()
            ],
            "bad_rows": {"count": self.refused_rows, "first": [{"row": row, "reason": reason} for row, reason in self.bad_rows]},
        }


def verify(format: Format, template: ChatTemplate, *, count: int = 30, seed: int = 0, options: Mapping[str, Any] | None = None) -> Verdict:
    """Compare the two over generated conversations, `count` for every feature; `options` come before those of a probe."""
    verdict = Verdict(format.name, template.origin)
    for number, probe in enumerate(probes(format, count=count, seed=seed), 1):
        chosen = probe.options | dict(options or {})
        found = compare(format, template, probe.messages, probe.tools, **chosen)
        features = [probe.feature]
        if probe.option is not None and isinstance(found, Parting):
            without = {name: value for name, value in chosen.items() if name != probe.option}
            if isinstance(compare(format, template, probe.messages, probe.tools, **without), Parting):
                features = []  # it is not the option that makes the difference
        given = {"messages": probe.messages, "tools": probe.tools, "options": chosen}
        verdict.add("generated", features, found, str(number), given)
    return verdict


def verify_row(
    verdict: Verdict,
    format: Format,
    template: ChatTemplate,
    place: str,
    messages: Sequence[Any],
    tools: Sequence[Tool] | None,
    options: Mapping[str, Any],
) -> None:
    """Compare the two over a row of data, and count it."""
    found = compare(format, template, messages, tools, **options)
    verdict.add("data", features_of(messages, tools, options), found, place)
