"""The push parser: text in, lexemes out, by a grammar's tables.  It knows no format.

Rules of this module:

* the batch parse is one feed and one close; there is no second parser;
* what is certain is handed on at once, what is not is kept: only text that may still become a marker, or whose marker
  still waits for what must follow it.  Kept text is never scanned again and again: every input costs linear time;
* the handlers get `(sink, text, start, end)` for a piece of a run and `(sink, alias, start, end)` for a rule, with offsets
  in code points of the whole text;
* a machine is plain data but for its nodes, which belong to the format: see `Machine.bind`.

A state of the tables becomes a `Node` with all that the inner loop needs, and each step a `Move`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import regex

from .errors import DIAGNOSTICS
from .grammar import JSON_RUNS, Action, Guard, Op, State, Step, Tables

_NON_BLANK = regex.compile(r"\S").search
_QUOTE_OR_ESCAPE = regex.compile(r'["\\]').search
_QUOTES = "`\"'"


class Sink(Protocol):
    """What the machine asks of whoever takes its lexemes, beside the handlers."""

    failed: bool  #: in a trial: something came up that a promoted call may not have

    def stray(self, start: int, end: int) -> None:
        """Text where none belongs."""

    def cut_marker(self, start: int, end: int) -> None:
        """The text ended in what may have been the start of a marker."""

    def known_names(self, guard: Guard, name: str) -> frozenset[str] | set[str]:
        """The names that let a marker count: of tools, or of arguments; with `name` "" those that the open call lacks."""

    def name_so_far(self) -> str:
        """The part of the open name that was handed on."""

    def trial(self) -> "Sink | None":
        """A sink for a call that reasoning runs into, or None if such calls are left alone."""

    def ended(self) -> None:
        """No more text comes."""

    def adopt(self, trial: "Sink") -> bool:
        """At the end: take over what a trial found, if it counts."""


Handler = Callable[[Any, Any, int, int], None]


@dataclass(frozen=True, slots=True)
class Handlers:
    """Functions for runs, for rules that ended, for rules that lack only their closer, for broken ones, for diagnostics."""

    runs: Mapping[str, Handler]
    ends: Mapping[str, Handler]
    cuts: Mapping[str, Handler]
    broken: Handler
    diagnose: Handler


Ops = tuple[tuple[Handler, int, str | None], ...]


@dataclass(slots=True, eq=False)
class Move:
    """What a marker does in a node."""

    literal: str
    target: int
    depth: int
    ops: Ops
    guard: Guard | None
    tentative: bool
    extend: bool  #: a longer marker begins with this one
    follow: tuple[str, ...]
    end_follows: bool
    follow_prefixes: frozenset[str]
    name_ends: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Node:
    """A state with all that the inner loop needs."""

    moves: dict[str, Move]
    ordered: tuple[tuple[str, Move], ...]  #: the markers to try at the cursor, longest first
    prefixes: frozenset[str]  #: every proper beginning of a marker
    longest: int
    first: str | None  #: the character that every marker begins with, if it is one
    single: str | None  #: the one marker that may end the run, if it is one
    search: Callable[..., Any]
    enter: int | None
    enter_ops: Ops
    run: str | None
    run_depth: int
    handler: Handler | None
    json: bool
    skips_blanks: bool
    end: Ops
    complete: bool
    strict: bool
    expected: tuple[str, ...] = field(default=())


def build_nodes(tables: Tables, handlers: Handlers) -> list[Node]:
    """Bind the tables to the functions that take their lexemes."""
    return [_node(state, tables, handlers) for state in tables.states]


def _ops(actions: tuple[Action, ...], handlers: Handlers) -> Ops:
    ops: list[tuple[Handler, int, str | None]] = []
    for op, rule, alias, depth in actions:
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


def _prefixes(literals: Any) -> frozenset[str]:
    return frozenset(literal[:length] for literal in literals for length in range(1, len(literal)))


def _move(step: Step, literals: list[str], handlers: Handlers) -> Move:
    return Move(
        literal=step.literal,
        target=step.target,
        depth=step.depth,
        ops=_ops(step.actions, handlers),
        guard=step.guard,
        tentative=step.tentative,
        extend=any(literal != step.literal and literal.startswith(step.literal) for literal in literals),
        follow=step.follow,
        end_follows=step.end_follows,
        follow_prefixes=_prefixes(step.follow),
        name_ends=step.name_ends,
    )


def _node(state: State, tables: Tables, handlers: Handlers) -> Node:
    literals = sorted(state.steps, key=len, reverse=True)
    moves = {literal: _move(state.steps[literal], literals, handlers) for literal in literals}
    cursor = [literal for literal in literals if state.enter is None or literal in state.cursor]
    inner = tables.states[state.enter] if state.enter is not None else None
    run = state.run or (inner.run if inner else None)
    firsts = {literal[0] for literal in literals}
    return Node(
        moves=moves,
        ordered=tuple((literal, moves[literal]) for literal in cursor),
        prefixes=_prefixes(cursor),
        longest=max(map(len, cursor), default=0),
        first=firsts.pop() if len(firsts) == 1 else None,
        single=literals[0] if len(literals) == 1 else None,
        search=regex.compile("|".join(map(regex.escape, literals)) or r"(?!)").search,
        enter=state.enter,
        enter_ops=_ops(state.enter_actions, handlers),
        run=run,
        run_depth=state.run_depth,
        handler=handlers.runs[state.run] if state.run else None,
        json=run in JSON_RUNS,
        skips_blanks=not tables.strict and (run is None or run in JSON_RUNS),
        end=_ops(state.end, handlers),
        complete=state.complete,
        strict=tables.strict,
        expected=(*literals, *([run] if run and state.enter is not None else ()), *(["the end"] if state.complete else ())),
    )


class Unexpected(Exception):
    """A strict grammar met something else than it allows.  Turned into a ParseError by the format."""

    def __init__(self, position: int, expected: tuple[str, ...]) -> None:
        super().__init__(position)
        self.position, self.expected = position, expected


_YES, _NO, _MORE, _BLANKS = range(4)  # verdicts on a marker: it counts, it does not, more text decides, more than blanks decides


class Machine:
    """One parse in progress."""

    __slots__ = ("blanks", "last", "nodes", "offset", "pending", "quoted", "raw", "sink", "starts", "state", "stray_from", "trial", "tried", "verbatim")

    def __init__(self, nodes: list[Node], sink: Sink, depth: int, *, state: int = 0, offset: int = 0) -> None:
        self.nodes = nodes
        self.sink = sink
        self.state = state
        self.offset = offset  #: of what is pending
        self.pending = ""
        self.blanks: list[str] = []  #: more of what is pending, while only blanks come
        self.starts = [0] * depth  #: where the symbol at each depth of the stack began
        self.last = ""  #: the last character of the open run
        self.quoted = False  #: inside a string of a JSON run
        self.verbatim: list[str] = []  #: the open JSON run, or what came since a trial began
        self.trial: Machine | None = None  #: parses a call that reasoning ran into, as if it counted
        self.tried = False  #: such a call was undone in this run
        self.stray_from: int | None = None  #: where text began that does not belong
        self.raw = ""  #: the end of what came since the trial began, to find a marker across feeds

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__ if name != "nodes"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def bind(self, nodes: list[Node]) -> None:
        """Give a machine that was copied or unpickled its format's nodes back."""
        self.nodes = nodes
        if self.trial is not None:
            self.trial.bind(nodes)

    def feed(self, chunk: str, *, final: bool = False) -> None:
        """Take more text; `final` says that it is the last."""
        if self.trial is not None:
            self._feed_trial(chunk, final)
            return
        if self.blanks:
            if not final and (not chunk or chunk.isspace()):
                self.blanks.append(chunk)
                return
            chunk = "".join(self.blanks) + chunk
            self.blanks.clear()
        elif not self.pending and not final:
            node = self.nodes[self.state]
            if node.handler is not None and node.first is not None and node.first not in chunk and not node.json:
                if chunk:
                    start = self.offset
                    self.offset = end = start + len(chunk)
                    self.last = chunk[-1]
                    node.handler(self.sink, chunk, start, end)
                return
        self._run(self.pending + chunk if self.pending else chunk, final)

    # -- the loop

    def _run(self, text: str, final: bool) -> None:
        nodes, sink, starts, base = self.nodes, self.sink, self.starts, self.offset
        size = len(text)
        pos = 0
        state = self.state
        while True:
            node = nodes[state]
            here = pos
            if node.skips_blanks and node.handler is None:
                while here < size and text[here].isspace():
                    here += 1
                pos = here
            if pos == size:
                break
            if node.handler is None:  # at the cursor: a marker that may come here
                move = None
                for literal, candidate in node.ordered:
                    if text.startswith(literal, pos):
                        move = candidate
                        break
                rest = size - pos
                if (move is None or move.extend) and not final and rest < node.longest and text[pos:] in node.prefixes:
                    break
                if move is not None and node.enter is not None and move.guard is not None:
                    verdict = self._check(move, text, pos, pos, final)
                    if verdict >= _MORE:
                        self._wait(verdict)
                        break
                    if verdict == _NO:
                        move = None
                if move is None and node.enter is None:
                    pos, found_marker = self._stray(node, text, pos, final)
                    if not found_marker:
                        break
                    continue
                if move is not None:
                    start, pos = pos, pos + len(move.literal)
                    starts[move.depth] = base + start
                    state = move.target
                    self.last = ""
                    for op, depth, alias in move.ops:
                        op(sink, alias, starts[depth], base + pos)
                    continue
            # in a run, or at the start of one
            before = node
            if node.enter is not None:
                node = nodes[node.enter]
            found, move, verdict = (self._find_json if node.json else self._find)(node, text, pos, final)
            if found > pos:
                if before is not node:
                    for op, depth, alias in before.enter_ops:
                        op(sink, alias, starts[depth], base + pos)
                    starts[before.run_depth] = base + pos
                    state = before.enter  # type: ignore[assignment]
                self.last = text[found - 1]
                if not node.json:
                    node.handler(sink, text[pos:found], base + pos, base + found)  # type: ignore[misc]
                else:
                    self.verbatim.append(text[pos:found])
            if move is None:
                pos = found
                self._wait(verdict)
                break
            if node.json:
                self._end_json(node, base + found)
            elif found == pos and before is not node:
                move = before.moves.get(move.literal, move)
            pos = found + len(move.literal)
            if move.tentative:
                self.state, self.offset, self.pending = state, base + found, ""
                self._try(move, text[found:], base + found, final)
                return
            starts[move.depth] = base + found
            state = move.target
            self.last = ""
            self.tried = False
            for op, depth, alias in move.ops:
                op(sink, alias, starts[depth], base + pos)
        self.state = state
        self.offset = base + pos
        self.pending = text[pos:]
        if final:
            self._end()

    def _find(self, node: Node, text: str, pos: int, final: bool) -> tuple[int, Move | None, int]:
        """Where the run ends, by which marker; or up to where it is certain to be run, and what the rest waits for."""
        scan, single, size = pos, node.single, len(text)
        while True:
            if single is not None:
                found = text.find(single, scan)
                if found < 0:
                    break
                move = node.moves[single]
            else:
                match = node.search(text, scan)
                if match is None:
                    break
                found = match.start()
                move = node.moves[match.group()]
                if move.extend and not final and size - found < node.longest and text[found:] in node.prefixes:
                    return found, None, _MORE
            if move.tentative and self.tried:
                verdict = _NO
            elif move.guard is None:
                return found, move, _YES
            else:
                verdict = self._check(move, text, pos, found, final)
            if verdict == _YES:
                return found, move, _YES
            if verdict >= _MORE:
                return found, None, verdict
            scan = found + 1
        if final:
            if node.run in ("CONTENT", "REASONING"):
                held = self._hold(node, text, pos)
                if held < size:
                    self.sink.cut_marker(self.offset + held, self.offset + size)
            return size, None, _MORE
        return self._hold(node, text, pos), None, _MORE

    @staticmethod
    def _hold(node: Node, text: str, pos: int) -> int:
        """Where the end of the text begins that may be the start of a marker."""
        size, first = len(text), node.first
        start = max(pos, size - node.longest + 1)
        if first is not None:
            at = text.find(first, start)
            while at >= 0:
                if text[at:] in node.prefixes:
                    return at
                at = text.find(first, at + 1)
            return size
        for at in range(start, size):
            if text[at:] in node.prefixes:
                return at
        return size

    # -- whether a marker counts

    def _check(self, move: Move, text: str, pos: int, found: int, final: bool) -> int:
        after = found + len(move.literal)
        guard = move.guard
        if guard is Guard.FOLLOW:
            return self._check_follow(move, text, after, final)
        if guard is Guard.END:
            if _NON_BLANK(text, after):
                return _NO
            return _YES if final else _BLANKS
        if guard is Guard.QUOTE:
            quote = text[found - 1] if found > pos else self.last
            if not quote or quote not in _QUOTES:
                return _YES
            if after == len(text):
                return _YES if final else _MORE
            return _NO if text[after] == quote else _YES
        return self._check_name(move, text, pos, found, after, final)

    def _check_follow(self, move: Move, text: str, after: int, final: bool) -> int:
        if text.startswith(move.follow, after):
            return _YES
        if not self.nodes[move.target].strict:
            match = _NON_BLANK(text, after)
            if match is None:
                return _BLANKS if not final else _YES if move.end_follows else _NO
            after = match.start()
            if text.startswith(move.follow, after):
                return _YES
        elif after == len(text):
            return _MORE if not final else _YES if move.end_follows else _NO
        if not final and len(text) - after < 1024 and text[after:] in move.follow_prefixes:
            return _MORE
        return _NO

    def _check_name(self, move: Move, text: str, pos: int, found: int, after: int, final: bool) -> int:
        assert move.guard is not None
        if not move.name_ends:  # the name stands before the marker
            name = self.sink.name_so_far() + text[pos:found]
            return _YES if name in self.sink.known_names(move.guard, name) else _NO
        rest = text[after : after + 1024]
        verdict = _NO
        for name in self.sink.known_names(move.guard, ""):
            for end in move.name_ends:
                if text.startswith(name + end, after):
                    return _YES
                if not final and len(rest) < len(name + end) and (name + end).startswith(rest):
                    verdict = _MORE
        return verdict

    def _wait(self, verdict: int) -> None:
        if verdict == _BLANKS:
            self.blanks.append("")

    # -- text where none belongs

    def _stray(self, node: Node, text: str, pos: int, final: bool) -> tuple[int, bool]:
        """Pass over text up to the next marker; where that is, and whether there is one."""
        if node.strict:
            raise Unexpected(self.offset + pos, node.expected)
        self.sink.failed = True
        match = node.search(text, pos)
        end = match.start() if match is not None else self._hold(node, text, pos)
        if end > pos and self.stray_from is None:
            self.stray_from = self.offset + pos
        if self.stray_from is not None and (final or match is not None):
            self.sink.stray(self.stray_from, self.offset + end)
            self.stray_from = None
        return (len(text) if final and match is None else end), match is not None

    # -- JSON runs: they end at the first closer outside JSON strings

    def _find_json(self, node: Node, text: str, pos: int, final: bool) -> tuple[int, Move | None, int]:
        at, size = pos, len(text)
        while True:
            if self.quoted:
                match = _QUOTE_OR_ESCAPE(text, at)
                if match is None:
                    break
                at = match.end()
                if match.group() == "\\":
                    if at == size and not final:
                        return at - 1, None, _MORE
                    at += 1
                else:
                    self.quoted = False
                continue
            quote = text.find('"', at)
            match = node.search(text, at, size if quote < 0 else quote)
            if match is not None:
                move = node.moves[match.group()]
                verdict = _YES if move.guard is None else self._check(move, text, pos, match.start(), final)
                if verdict != _NO:
                    return match.start(), move if verdict == _YES else None, verdict
                at = match.end()
            elif quote < 0:
                return size if final else self._hold(node, text, max(at, pos)), None, _MORE
            else:
                at, self.quoted = quote + 1, True
        if not final:
            return size, None, _MORE
        # a string that never closed: read once more, to the first closer
        self.quoted = False
        whole = "".join(self.verbatim) + text[pos:]
        match = node.search(whole)
        if match is None:
            return size, None, _MORE
        self.verbatim = [whole[: match.start()]]
        return size - (len(whole) - match.start()), node.moves[match.group()], _YES

    def _end_json(self, node: Node, end: int) -> None:
        whole = "".join(self.verbatim)
        self.verbatim.clear()
        node.handler(self.sink, whole, end - len(whole), end)  # type: ignore[misc]

    # -- calls that reasoning runs into

    def _try(self, move: Move, text: str, offset: int, final: bool) -> None:
        """Parse on as if the call counted, and keep the text in case that it does not."""
        sink = self.sink.trial()
        if sink is None:
            self.tried = True
            self._run(text, final)
            return
        trial = Machine(self.nodes, sink, len(self.starts), state=move.target, offset=offset + len(move.literal))
        trial.starts = self.starts.copy()
        trial.starts[move.depth] = offset
        for op, depth, alias in move.ops:
            op(sink, alias, trial.starts[depth], trial.offset)
        self.trial = trial
        self.verbatim = [text[: len(move.literal)]]
        self.raw = ""
        self._feed_trial(text[len(move.literal) :], final)

    def _feed_trial(self, chunk: str, final: bool) -> None:
        trial = self.trial
        assert trial is not None
        self.verbatim.append(chunk)
        trial.feed(chunk, final=final)
        watched = self.raw + chunk
        node = self.nodes[self.state]
        closers = [move.literal for move in self.nodes[node.enter if node.enter is not None else self.state].moves.values() if move.guard is Guard.QUOTE]
        self.raw = watched[-max(map(len, closers), default=1) + 1 :]
        failed = trial.sink.failed or any(closer in watched for closer in closers)
        if not failed and final:
            if self.sink.adopt(trial.sink):
                self.trial = None
                self.state = trial.state
                self.offset = trial.offset
                return
            failed = True
        if failed:
            self.trial = None
            self.tried = True
            text = "".join(self.verbatim)
            self.verbatim = []
            self._run(text, final)

    def _end(self) -> None:
        node = self.nodes[self.state]
        if node.strict and not node.complete:
            raise Unexpected(self.offset, node.expected)
        if node.json and self.verbatim:
            self._end_json(node if node.handler else self.nodes[node.enter or 0], self.offset + len(self.pending))
        end = self.offset + len(self.pending)
        self.sink.ended()
        for op, depth, alias in node.end:
            op(self.sink, alias, self.starts[depth], end)
