"""What the machine hands its lexemes to.

Rules of this module: interfaces only, so that the machine knows no assembler and no format.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Protocol

from .grammar import Guard

Handler = Callable[[Any, Any, int, int], None]


@dataclass(frozen=True, slots=True)
class Handlers:
    """Functions for runs, for rules that ended, for rules that lack only their closer, for broken ones, for diagnostics."""

    runs: Mapping[str, Handler]
    ends: Mapping[str, Handler]
    cuts: Mapping[str, Handler]
    broken: Handler
    diagnose: Handler


class Sink(Protocol):
    """What the machine asks of whoever takes its lexemes, beside the handlers."""

    failed: bool  #: in a trial: something came up that a promoted call may not have
    spell: Callable[[str], str] | None  #: gives text as it is read, where the machine has another spelling
    document: tuple[Any] | None  #: what the JSON run that comes says, if it was read already

    def stray(self, start: int, end: int) -> None:
        """Text where none belongs."""

    def cut_marker(self, start: int, end: int) -> None:
        """The text ended in what may have been the start of a marker."""

    def json_so_far(self) -> str:
        """The open JSON run, as far as it was handed on."""

    def shorten(self, text: str, start: int) -> None:
        """The open JSON run is no more than this text: a string in it never closed, so it is no JSON."""

    def known_names(self, guard: Guard, name: str) -> AbstractSet[str]:
        """The names that let a marker count: of tools, or of arguments; with `name` "" those that the open call lacks."""

    def name_so_far(self, guard: Guard) -> str:
        """The part of the open name, of a tool or of an argument, that was handed on."""

    def trial(self) -> "Sink | None":
        """A sink for a call that reasoning runs into, or None if such calls are left alone."""

    def ended(self) -> None:
        """No more text comes."""

    def adopt(self, trial: "Sink") -> bool:
        """At the end: take over what a trial found, if it counts."""


class Unexpected(Exception):
    """A strict grammar met something else than it allows.  Turned into a ParseError by the format."""

    def __init__(self, position: int, expected: tuple[str, ...]) -> None:
        super().__init__(position)
        self.position, self.expected = position, expected
