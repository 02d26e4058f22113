"""What a stream yields, in the order in which the model wrote it.

Adjacent deltas of one kind may be joined; joined, they are the same for every way to cut the text.  The events are plain
dataclasses and not frozen ones, since making a frozen one costs more than parsing a token does: treat them as values.
"""

from dataclasses import dataclass

from .errors import Diagnostic


@dataclass(slots=True)
class ReasoningDelta:
    """More of the reasoning."""

    text: str


@dataclass(slots=True)
class ContentDelta:
    """More of the answer that the user sees."""

    text: str


@dataclass(slots=True)
class ToolCallStart:
    """A call whose name is final.  `index` numbers the calls of the reply, from 0; a dropped call keeps its number."""

    index: int
    name: str


@dataclass(slots=True)
class ArgumentsDelta:
    """More of a call's arguments, as JSON text; all fragments of one call join to one JSON object."""

    index: int
    text: str


@dataclass(slots=True)
class ToolCallEnd:
    """The call is complete; only now may it be run."""

    index: int


@dataclass(slots=True)
class ToolCallDropped:
    """A call that was started and then turned out to be broken or cut off: it must not be run.  `code` says why."""

    index: int
    code: str


@dataclass(slots=True)
class Diagnosed:
    """Something odd was found."""

    diagnostic: Diagnostic


Event = ReasoningDelta | ContentDelta | ToolCallStart | ArgumentsDelta | ToolCallEnd | ToolCallDropped | Diagnosed
