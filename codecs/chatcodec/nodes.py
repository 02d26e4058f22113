"""Tables made ready for the machine: each state a `Node` with all that the inner loop needs, each step a `Move`.

Rules of this module: it binds the names of runs and rules to the functions that take them, and compiles patterns, each when
its state is first met; it decides nothing.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from typing import Any

from .errors import DIAGNOSTICS
from .grammar import JSON_RUNS, NAME_RUNS, Action, Guard, Op, State, Step, Tables
from .jsontext import STRING_END
from .sink import Handler, Handlers

Ops = tuple[tuple[Handler | None, int, str | None], ...]
"""What to do with rules: a function, the depth at which the rule began, and its name; None notes that it begins here."""


@dataclass(slots=True, eq=False)
class Move:
    """What a marker does in a node."""

    literal: str
    target: int
    depth: int
    before: Ops
    ops: Ops
    guard: Guard | None
    tentative: bool
    extend: bool  #: a longer marker begins with this one
    plain: bool  #: it counts wherever it stands
    quick: bool  #: it counts where one of `follow` stands behind it
    quoted: bool  #: it counts where it does not stand in quotes
    follow: tuple[str, ...]
    end_follows: bool
    follow_prefixes: frozenset[str]
    name_ends: tuple[str, ...]


class Kind(IntEnum):
    """What may come in a state."""

    BETWEEN = 0  #: only a marker
    BEFORE = 1  #: a run may start
    INSIDE = 2  #: a run is open


@dataclass(slots=True, eq=False)
class Node:
    """A state with all that the inner loop needs.  Where a run may start, this includes what belongs to the state inside it."""

    kind: int
    moves: dict[str, Move]  #: what each marker does here
    closers: dict[str, Move]  #: what each marker does inside the run
    ordered: tuple[tuple[str, Move], ...]  #: BEFORE: the markers to try at the cursor, longest first
    prefixes: frozenset[str]  #: every proper beginning of a marker that may come at the cursor, or inside the run
    endings: frozenset[str]  #: every proper beginning of a marker that may end the run
    longest: int
    firsts: frozenset[str]  #: BEFORE: the characters that markers begin with which may come here only
    first: str | None  #: the character that every marker begins with that may end the run, if it is one
    lead: str | None  #: the character that every marker begins with that may come, if it is one
    begins: Callable[[str], Any]  #: finds a character that a marker begins with
    search: Callable[..., Any]  #: finds the next marker
    at: Callable[..., Any]  #: the marker that ends the run at a place
    match: Callable[..., Any]  #: BETWEEN: the marker at the cursor, behind layout
    enter: int
    enter_ops: Ops
    run: str | None
    run_depth: int
    handler: Handler
    json: bool
    string: "Node | None"  #: for JSON: the same inside a string, where no marker counts
    special: bool  #: there is more to look at than markers that end the run
    skips_blanks: bool
    end: Ops
    complete: bool
    strict: bool
    expected: tuple[str, ...]


def build_nodes(tables: Tables, handlers: Handlers, spell: Callable[[str], str] | None = None) -> list[Node]:
    """Bind the tables to the functions that take their lexemes; those of JSON runs `spell` for themselves."""
    if spell is not None:
        runs = {run: handler if run in JSON_RUNS else _spelling(handler, spell) for run, handler in handlers.runs.items()}
        handlers = replace(handlers, runs=runs)
    moves = [_moves(state, handlers) for state in tables.states]
    return [_node(number, state, moves, tables, handlers) for number, state in enumerate(tables.states)]


def _spelling(handler: Handler, spell: Callable[[str], str]) -> Handler:
    def handle(sink: Any, text: str, start: int, end: int) -> None:
        handler(sink, spell(text), start, end)

    return handle


def _ops(actions: tuple[Action, ...], handlers: Handlers) -> Ops:
    if not actions:
        return ()
    ops: list[tuple[Handler | None, int, str | None]] = []
    for op, rule, alias, depth in actions:
        if op is Op.EMPTY:
            ops.append((None, depth, None))
        if op is Op.BROKEN:
            ops.append((handlers.broken, depth, rule))
        elif op is Op.CUT:
            ops.append((handlers.cuts.get(rule, handlers.broken), depth, rule))
        else:
            if alias in DIAGNOSTICS:
                ops.append((handlers.diagnose, depth, alias))
            handler = handlers.ends.get(alias or rule) or handlers.ends.get(rule)
            if handler is not None:
                ops.append((handler, depth, alias or rule))
    return tuple(ops)


def _common(literals: list[str]) -> str:
    """The longest beginning that all of them share."""
    low, high = min(literals), max(literals)
    return low[: next((at for at, (one, other) in enumerate(zip(low, high, strict=False)) if one != other), len(low))]


def _any_of(literals: list[str]) -> str:
    """A pattern for any of the literals, the longest first.

    `re` looks for a pattern's first character fast if no more than that is certain, so only that is taken out in front.
    """
    first = {literal[0] for literal in literals}
    if len(first) != 1 or min(map(len, literals)) == 1:
        return _alternatives(literals)
    return f"{re.escape(first.pop())}(?:{_alternatives([literal[1:] for literal in literals])})"


def _alternatives(literals: list[str]) -> str:
    """A pattern for any of the literals, with common beginnings taken out, so that few are tried where one might be."""
    if not literals:
        return r"(?!)"
    if len(literals) == 1:
        return re.escape(literals[0])
    common = _common(literals)
    if common:
        rest = [literal[len(common) :] for literal in literals]
        return f"{re.escape(common)}(?:{_alternatives([tail for tail in rest if tail])}){'?' if '' in rest else ''}"
    by_first: dict[str, list[str]] = {}
    for literal in literals:
        by_first.setdefault(literal[0], []).append(literal)
    return "|".join(map(_alternatives, by_first.values()))


@lru_cache(maxsize=1024)
def _beginnings(literal: str) -> frozenset[str]:
    return frozenset(literal[:length] for length in range(1, len(literal)))


def _prefixes(literals: Iterable[str]) -> frozenset[str]:
    return frozenset().union(*map(_beginnings, literals))


def _moves(state: State, handlers: Handlers) -> dict[str, Move]:
    """What each marker does in a state, the longest first."""
    json = state.run in JSON_RUNS
    literals = sorted(state.steps, key=len, reverse=True)
    moves = {}
    for literal in literals:
        step = state.steps[literal]
        extend = any(other is not literal and other.startswith(literal) for other in literals)
        simple = not (extend or step.tentative or json)
        moves[literal] = Move(
            literal=literal,
            target=step.target,
            depth=step.depth,
            before=_ops(step.before, handlers),
            ops=_ops(step.after, handlers),
            guard=step.guard,
            tentative=step.tentative,
            extend=extend,
            plain=simple and step.guard is None,
            quick=simple and step.guard is Guard.FOLLOW,
            quoted=simple and step.guard is Guard.QUOTE,
            follow=step.follow,
            end_follows=step.end_follows,
            follow_prefixes=_prefixes(step.follow) if step.follow else frozenset(),
            name_ends=step.name_ends,
        )
    return moves


def _node(number: int, state: State, all_moves: list[dict[str, Move]], tables: Tables, handlers: Handlers) -> Node:
    inner = tables.states[state.enter] if state.enter is not None else None
    run = state.run or (inner.run if inner else None)
    json = run in JSON_RUNS
    moves = all_moves[number]
    closers = all_moves[state.enter] if state.enter is not None else moves
    literals, ending = list(moves), list(closers)
    cursor = [literal for literal in literals if literal in state.cursor] if inner else literals
    firsts, leads = {literal[0] for literal in ending}, {literal[0] for literal in cursor + ending}
    skips_blanks = not tables.strict and (run is None or json)
    held = cursor + ending
    node = Node(
        kind=Kind.INSIDE if state.run else Kind.BETWEEN if inner is None else Kind.BEFORE,
        moves=moves,
        closers=closers,
        ordered=tuple((literal, moves[literal]) for literal in cursor),
        prefixes=_prefixes(held),
        endings=_prefixes(ending),
        longest=max(map(len, held), default=0),
        firsts=frozenset(literal[0] for literal in cursor),
        first=min(firsts) if len(firsts) == 1 else None,
        lead=min(leads) if len(leads) == 1 else None,
        begins=re.compile(f"[{''.join(sorted(map(re.escape, leads)))}]" if leads else r"(?!)").search,
        search=_unset,
        at=_unset,
        match=_unset,
        enter=-1 if state.enter is None else state.enter,
        enter_ops=_ops(state.enter_actions, handlers),
        run=run,
        run_depth=state.run_depth,
        handler=handlers.runs[run] if run else handlers.diagnose,
        json=json,
        string=None,
        special=json or run == "REASONING" or bool(inner and cursor),
        skips_blanks=skips_blanks,
        end=_ops(state.end, handlers),
        complete=state.complete,
        strict=tables.strict,
        expected=(*literals, *([run] if run and inner else ()), *(["the end"] if state.complete else ())),
    )
    # most states of a grammar are never met: their patterns are compiled when they are

    def search(*where: Any) -> Any:
        pattern = re.compile(_any_of(ending))
        node.search, node.at = pattern.search, pattern.match
        return node.search(*where)

    def at(*where: Any) -> Any:
        node.at = re.compile(_any_of(ending)).match
        return node.at(*where)

    def match(*where: Any) -> Any:
        layout = r"\s*" if skips_blanks else ""
        node.match = re.compile(f"{layout}(?:{_jump(state, tables, handlers)}({_any_of(literals)}))").match
        return node.match(*where)

    node.search, node.at, node.match = search, at, match
    if json:
        node.string = replace(node, lead=None, begins=STRING_END)
    return node


def _unset(*where: Any) -> Any:
    raise AssertionError("a node without its patterns")


def _jump(state: State, tables: Tables, handlers: Handlers) -> str:
    """A pattern for a marker, a whole name behind it and the marker that ends that, where nothing else could come of them.

    It gives what the machine would find in two steps of its loop, in one.
    """

    def end_ops(step: Step) -> Ops:
        return _ops(step.before + step.after, handlers)

    for step in state.steps.values():
        target = tables.states[step.target]
        inner = tables.states[target.enter] if target.enter is not None else None
        if inner is None or inner.run not in NAME_RUNS or step.recovery or step.guard:
            continue
        if end_ops(step) or _ops(target.enter_actions, handlers):
            continue
        plain = [
            literal
            for literal, end in inner.steps.items()
            if not (end.recovery or end.guard or end_ops(end))
            and not any(other != literal and other.startswith(literal) for other in inner.steps)
        ]
        firsts = "".join(sorted({re.escape(literal[0]) for literal in inner.steps}))
        return f"({re.escape(step.literal)})([^{firsts}]+)({_alternatives(plain)})|" if plain else ""
    return ""
