"""What a parse gives, as plain data, and what sets a format apart when it is read.

Rules of this module: no logic; everything can be pickled.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from .errors import Diagnostic
from .messages import Message

FinishReason = Literal["stop", "tool_calls", "length"]
Policy = Literal["strict", "recover", "raw"]


class Layout(Enum):
    """What at the edges of a run is layout: all blanks, or the one newline before its end."""

    BLANKS = "blanks"
    LINE = "line"


@dataclass(slots=True)
class Segment:
    """A piece of a reply in the order written: its text, where it stands, and for a call its index in `tool_calls`."""

    kind: Literal["reasoning", "content", "call"]
    text: str
    span: tuple[int, int]
    call: int | None = None


@dataclass(slots=True)
class PartialCall:
    """A call that was cut off: its name so far, the arguments that are closed, and the open one with its text so far."""

    name: str
    arguments: dict[str, Any]
    open: dict[str, str] | None


@dataclass(slots=True)
class Reply:
    """What a completion says."""

    message: Message
    segments: list[Segment]
    diagnostics: list[Diagnostic]
    partial: PartialCall | None
    finish_reason: FinishReason


class Ways:
    """What sets a format apart when it is read: which runs are trimmed how, and what empty reasoning is."""

    __slots__ = ("empty_reasoning", "line_values", "stop_ends_calls", "text_blocks", "trim_content", "trim_reasoning")

    def __init__(
        self, layout: Mapping[str, Layout], *, empty_reasoning: bool = False, text_blocks: bool = False, stop_ends_calls: bool = False
    ) -> None:
        self.trim_reasoning = layout.get("REASONING") is Layout.BLANKS
        self.trim_content = layout.get("CONTENT") is Layout.BLANKS
        self.line_values = layout.get("ARG_VALUE") is Layout.LINE
        self.stop_ends_calls = stop_ends_calls  #: the last call of a turn has no closer but the stop token
        self.text_blocks = text_blocks  #: content is a list of texts, each with its own frame
        self.empty_reasoning = empty_reasoning  #: reasoning that is there but empty is "", not None
