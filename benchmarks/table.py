"""A row of the table: how it is measured, printed and written as JSON.

Every ratio is chatcodec's time divided by the other's: under 1, chatcodec is the faster one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .timing import Lap, race

OURS = "chatcodec"
#: The columns beside chatcodec's own.  `smaller` is chatcodec again, with the smaller size that the row names.
PEERS = ("scanner", "transformers", "minijinja", "jinja2", "smaller", "tokenizer", "unmasked", "sglang", "vllm")
SCALES = {"us": 1e6, "ms": 1e3, "bytes": 1.0}
WIDTHS = (11, 52, 15, 10, 15, 15, 15, 15, 15, 15, 15, 15, 15)


@dataclass(frozen=True)
class Row:
    """A row before it is measured.

    `unit` is `us`, `ms` or `bytes`, with or without what it is for (`us/delta`), or a rate (`turns/s`).  `prepare` makes the laps
    and checks that all contestants do the same work.  `goals` are the largest ratios allowed, by peer; for chatcodec's own
    name, the seconds allowed.
    """

    format: str
    name: str
    unit: str
    prepare: Callable[[], Mapping[str, Lap]]
    goals: Mapping[str, float] = field(default_factory=dict)
    least: int = 3  #: rounds, however long they take

    def measure(self, seconds: float) -> "Figures":
        """Run the race; a row that nobody can run has no figures."""
        return Figures(self, race(dict(self.prepare()), seconds, self.least))


@dataclass(frozen=True)
class Figures:
    """A row and its best laps, in seconds for one item."""

    row: Row
    best: Mapping[str, float]

    def ratio(self, peer: str) -> float:
        """How many times as long chatcodec takes."""
        return self.best[OURS] / self.best[peer]

    def met(self) -> dict[str, bool]:
        """Which goals were reached; a goal against a peer that did not run is left out."""
        values = {name: self.best[OURS] if name == OURS else self.ratio(name) for name in self.row.goals if name in self.best}
        return {name: value <= self.row.goals[name] for name, value in values.items()}

    def line(self) -> str:
        """The row as it is printed."""
        if OURS not in self.best:
            return _aligned([self.row.format, self.row.name, self.row.unit, "-", *("-" for _ in PEERS)])
        cells = [self.row.format, self.row.name, self.row.unit, self._shown(OURS)]
        cells += [f"{self._shown(peer)} ({self.ratio(peer):.2f}x)" if peer in self.best else "-" for peer in PEERS]
        return _aligned(cells) + "  " + ", ".join(self._goal(name, met) for name, met in self.met().items())

    def as_json(self) -> dict[str, Any]:
        """The row as an object."""
        return {
            "format": self.row.format,
            "row": self.row.name,
            "seconds": dict(self.best),
            "ratios": {peer: self.ratio(peer) for peer in PEERS if peer in self.best},
            "goals": dict(self.row.goals),
            "met": self.met(),
        }

    def _shown(self, name: str) -> str:
        scale = SCALES.get(self.row.unit.partition("/")[0])
        value = self.best[name] * scale if scale else 1 / self.best[name]
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

    def _goal(self, name: str, met: bool) -> str:
        unit = self.row.unit.partition("/")[0]
        allowed = f"{self.row.goals[name] * SCALES[unit]:g} {unit}" if name == OURS else f"{self.row.goals[name]:g}x {name}"
        return f"{'met' if met else 'MISSED'}: {allowed}"


def header() -> str:
    """The first line of the table."""
    return _aligned(["format", "what", "unit", OURS, *PEERS]) + "  goal"


def _aligned(cells: list[str]) -> str:
    texts = [cell.ljust(width) for cell, width in zip(cells[:3], WIDTHS, strict=False)]
    return " ".join(texts + [cell.rjust(width) for cell, width in zip(cells[3:], WIDTHS[3:], strict=True)])
