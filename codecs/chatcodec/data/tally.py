"""What came of the rows of a conversion: counts by code, with the first few places of each.

Rules of this module:

* a tally is plain data: workers make one for each chunk, the engine adds them up in the order of the chunks, a checkpoint
  keeps the sum as JSON;
* adding up in order makes the first places those that come first in the input, whoever counted them.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

FIRST = 3  #: places that are kept of each code


class Place(NamedTuple):
    """Where something was found: the file, the number of the row in it, the path in the row, and the particulars."""

    file: str
    row: int
    path: str
    detail: str | None

    def __str__(self) -> str:
        return f"{self.file}, row {self.row}" + (f": {self.path}" if self.path else "") + (f" ({self.detail})" if self.detail else "")


@dataclass(slots=True)
class Finding:
    """How often a code was found, in how many rows, and where first."""

    count: int = 0
    rows: int = 0
    first: list[Place] = field(default_factory=list)


Findings = dict[str, Finding]


@dataclass(slots=True)
class Tally:
    """The counts of a conversion.

    Of the rows that were `read`, each is `written`, `refused` (it could not be converted) or `rejected` (it could, but lost
    something, and losses were not wanted).  `lossy` and `repaired` count the rows, written or rejected, with a loss or a
    repair.
    """

    read: int = 0
    written: int = 0
    refused: int = 0
    rejected: int = 0
    lossy: int = 0
    repaired: int = 0
    losses: Findings = field(default_factory=dict)
    repairs: Findings = field(default_factory=dict)
    refusals: Findings = field(default_factory=dict)


COUNTS = ("read", "written", "refused", "rejected", "lossy", "repaired")
FINDINGS = ("losses", "repairs", "refusals")


def note(findings: Findings, code: str, place: Place, *, again: bool = False) -> None:
    """Count a code; `again` where the row has had it before."""
    found = findings.get(code)
    if found is None:
        found = findings[code] = Finding()
    found.count += 1
    found.rows += not again
    if len(found.first) < FIRST:
        found.first.append(place)


def add(total: Tally, more: Tally) -> None:
    """Add what was counted later."""
    for name in COUNTS:
        setattr(total, name, getattr(total, name) + getattr(more, name))
    for name in FINDINGS:
        known: Findings = getattr(total, name)
        for code, found in getattr(more, name).items():
            into = known.setdefault(code, Finding())
            into.count += found.count
            into.rows += found.rows
            into.first += found.first[: FIRST - len(into.first)]


def as_json(tally: Tally) -> dict[str, Any]:
    """The tally as an object, the most frequent codes first."""
    shown: dict[str, Any] = {"rows": {name: getattr(tally, name) for name in COUNTS}}
    for name in FINDINGS:
        findings: Findings = getattr(tally, name)
        shown[name] = {
            code: {"count": found.count, "rows": found.rows, "first": [place._asdict() for place in found.first]}
            for code, found in sorted(findings.items(), key=lambda item: (-item[1].count, item[0]))
        }
    return shown


def from_json(shown: dict[str, Any]) -> Tally:
    """The tally of such an object.  Raises KeyError, TypeError or AttributeError for any other."""
    tally = Tally()
    for name in COUNTS:
        setattr(tally, name, int(shown["rows"][name]))
    for name in FINDINGS:
        for code, found in shown[name].items():
            getattr(tally, name)[code] = Finding(found["count"], found["rows"], [Place(**place) for place in found["first"]])
    return tally
