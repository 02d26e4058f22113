"""The push parser: text in, lexemes out, by a grammar's tables.  It knows no format.

Rules of this module:

* the batch parse is one feed and one close; there is no second parser;
* what is certain is handed on at once, what is not is kept: only text that may still become a marker, or whose marker
  still waits for what must follow it.  Kept text is never scanned again and again: every input costs linear time;
* the handlers get `(sink, text, start, end)` for a piece of a run and `(sink, name, start, end)` for a rule, with offsets
  in code points of the whole text;
* a machine is plain data but for its nodes, which belong to the format: see `Machine.bind`.
"""

import re
from typing import Any

from .grammar import QUOTES, Guard
from .jsonruns import AGAIN, BEGUN, BLANKS, MORE, NO, YES, find_end, read_whole
from .nodes import Move, Node, Ops
from .search import LONG, hold, search_far
from .sink import Sink, Unexpected

_NON_BLANK = re.compile(r"\S").search


class Machine:
    """One parse in progress."""

    # what only some parses need stands here as a default, so that making a machine is cheap
    pending = ""  #: text that is not decided
    blanks: list[str] | None = None  #: more of it, while only blanks come
    verbatim: list[str]  #: what came since a trial began
    hope: frozenset[str] = frozenset()  #: it stays undecided as long as it is one of these
    hope_at = 0  #: from there on
    open: Node | None = None  #: where more of a run may come, or its beginning, if nothing is pending
    last = ""  #: the end of the open run, as far as it was handed on
    quoted = False  #: inside a string of a JSON run
    unclosed: tuple[int, bytearray] | None = None  #: from an offset on, where the text was in a string and no JSON run ended
    tried = False  #: a call in this reasoning was undone
    trial: "Machine | None" = None  #: parses a call that reasoning ran into, as if it counted
    raw = ""  #: the end of what came since the trial began, to find a marker across feeds
    rest: tuple[str, int] = ("", 0)  #: text to read again, and its offset
    stray_from: int | None = None  #: where text began that does not belong

    def __init__(self, nodes: list[Node], sink: Sink, depth: int, *, state: int = 0, offset: int = 0) -> None:
        self.nodes = nodes
        self.sink = sink
        self.state = state
        self.offset = offset  #: of what is pending
        # what each piece of a stream looks at stands in the machine itself: Python is quick with what is always in one place
        self.pending = self.last = ""
        self.open = self.blanks = self.trial = self.stray_from = None
        self.hope_at = 0
        self.starts = [0] * depth  #: where the symbol at each depth of the stack began

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("nodes", "open")}

    def bind(self, nodes: list[Node]) -> None:
        """Give a machine that was copied or unpickled its format's nodes back."""
        self.nodes = nodes
        if not self.pending and not self.blanks and self.trial is None:
            self._open()
        if self.trial is not None:
            self.trial.bind(nodes)

    def feed(self, chunk: str, *, final: bool = False) -> None:
        """Take more text; `final` says that it is the last."""
        node = self.open
        if node is not None and chunk and not final:
            lead = node.lead
            if lead not in chunk if lead is not None else node.begins(chunk) is None:  # nothing but more of the run
                start = self.offset
                self.offset = end = start + len(chunk)
                self.last = chunk
                if node.kind == 1:
                    if node.enter_ops:
                        self._apply(node.enter_ops, start)
                    self.starts[node.run_depth] = start
                    self.state = node.enter
                    self.open = self.nodes[node.enter]
                node.handler(self.sink, chunk, start, end)
                return
        if self.trial is not None:
            self._feed_trial(chunk, final)
            return
        if self.blanks:
            if not final and (not chunk or chunk.isspace()):
                self.blanks.append(chunk)
                return
            chunk = "".join(self.blanks) + chunk
            self.blanks = None
        if self.pending:
            chunk = self.pending + chunk
            if not final and (chunk[self.hope_at :] if self.hope_at else chunk) in self.hope:
                self.pending = chunk
                return
        self._run(chunk, final)

    @property
    def position(self) -> int:
        """How much text there was so far, in code points; right once the last was fed."""
        return self.offset + len(self.pending)

    # -- the loop

    def _run(self, text: str, final: bool) -> None:
        nodes, sink, starts, base = self.nodes, self.sink, self.starts, self.offset
        size = len(text)
        pos = self.hope_at = 0
        state = self.state
        move: Move
        while True:
            node = nodes[state]
            kind = node.kind
            if kind == 0:  # between runs: only a marker may come
                match = node.match(text, pos)
                if match is None:
                    pos, found_marker = self._between(node, text, pos, final)
                    if found_marker:
                        continue
                    break
                pos = match.end()
                if self.stray_from is not None:
                    self._end_stray(base + match.start(1 if match.lastindex == 3 else match.lastindex))
                if match.lastindex == 3:  # a marker, a name and its closer at once
                    opener, name, literal = match[1], match[2], match[3]
                    move = node.moves[opener]
                    found = pos - len(literal)
                    start = found - len(name)
                    starts[move.depth] = base + start - len(opener)
                    node = nodes[move.target]
                    starts[node.run_depth] = base + start
                    node.handler(sink, name, base + start, base + found)
                    move = node.closers[literal]
                    starts[move.depth] = base + found
                    state = move.target
                    continue
                literal = match[match.lastindex]
                move = node.moves[literal]
                found = pos - len(literal)
                if move.extend and not final and size - found < node.longest and text[found:] in node.prefixes:
                    pos = found
                    break
            else:
                if pos == size and not (final and node.json and self.quoted):
                    break
                if kind == 1 and node.special:
                    self.last, verdict = "", NO
                    if text[pos] in node.firsts or (node.skips_blanks and text[pos].isspace()):
                        pos, taken, verdict = self._before(node, text, pos, final)
                    if verdict >= MORE:
                        if verdict == BLANKS:
                            self.blanks = [""]
                        break
                    if verdict == YES and taken is not None:
                        if taken.before:
                            self._apply(taken.before, base + pos)
                        starts[taken.depth] = base + pos
                        pos += len(taken.literal)
                        state = taken.target
                        self._apply(taken.ops, base + pos)
                        continue
                if node.json and not (kind == 1 and final):
                    match = None
                else:
                    match = node.search(text, pos) if size - pos < LONG else search_far(node, text, pos)
                if match is not None and (
                    (move := node.closers[match[0]]).plain
                    or (move.quick and text.startswith(move.follow, match.end()))
                    or (move.quoted and match.start() > pos and text[match.start() - 1] not in QUOTES)
                ):  # the usual way: a marker that counts for certain
                    found = match.start()
                    if found > pos:
                        if kind == 1:
                            if node.enter_ops:
                                self._apply(node.enter_ops, base + pos)
                            starts[node.run_depth] = base + pos
                        node.handler(sink, text[pos:found], base + pos, base + found)
                    elif kind == 1:
                        move = node.moves.get(move.literal, move)
                    pos = match.end()
                else:
                    if node.json:
                        whole = None
                        if kind == 1:
                            sink.document = None
                            if match is not None and not node.strict:
                                whole = read_whole(self.sink, node, text, pos, match)
                        found, taken, verdict = whole or find_end(self, node, text, pos, final)
                        if verdict == AGAIN:
                            text, base = self.rest
                            self.offset, size, pos = base, len(text), 0
                    elif match is None and not final:
                        found, taken, verdict = hold(node, text, pos), None, MORE
                    elif match is not None and move.quick and (verdict := self._check_follow(move, text, match.end(), final)) >= MORE:
                        found, taken = match.start(), None
                    else:
                        found, taken, verdict = self._find(node, text, pos, final, match)
                    if found > pos or verdict == BEGUN:
                        if kind == 1:
                            if node.enter_ops:
                                self._apply(node.enter_ops, base + pos)
                            starts[node.run_depth] = base + pos
                            state = node.enter
                        self.last = text[found - 1 : found] if found > pos else ""
                        node.handler(sink, text[pos:found], base + pos, base + found)
                    if taken is None:
                        pos = found
                        if final and pos < size:
                            continue  # to the beginning of a marker that never came whole
                        if verdict == BLANKS:
                            self.blanks = [""]
                        break
                    move = taken
                    if found == pos and kind == 1 and verdict != BEGUN:
                        move = node.moves.get(move.literal, move)
                    if move.tentative:
                        self.state, self.offset, self.pending = state, base + found, ""
                        self._try(move, text[found:], base + found, final)
                        return
                    pos = found + len(move.literal)
            if move.before:
                self._apply(move.before, base + found)
            starts[move.depth] = base + found
            state = move.target
            for op, depth, alias in move.ops:
                if op is None:
                    starts[depth] = base + pos
                else:
                    op(sink, alias, starts[depth], base + pos)
        self.state = state
        self.offset = base + pos
        self.pending = text[pos:]
        if pos == size:
            self._open()
        else:
            self.open = None
            if not self.hope_at:
                self.hope = nodes[state].prefixes
        if final:
            self._end()

    def _open(self) -> None:
        node = self.nodes[self.state]
        self.open = None if node.kind == 0 else node if not node.json else node.string if self.quoted else None

    def _apply(self, ops: Ops, place: int) -> None:
        """Do what becomes of rules at a place."""
        for op, depth, alias in ops:
            if op is None:
                self.starts[depth] = place
            else:
                op(self.sink, alias, self.starts[depth], place)

    def _before(self, node: Node, text: str, pos: int, final: bool) -> tuple[int, Move | None, int]:
        """What to look at before a run starts: layout, and markers that may come here but not end the run."""
        if node.skips_blanks:
            match = _NON_BLANK(text, pos)
            if match is None:
                return len(text), None, MORE
            pos = match.start()
        if text[pos] not in node.firsts:
            return pos, None, NO
        move, verdict = self._at_cursor(node, text, pos, final)
        return pos, move, verdict

    def _at_cursor(self, node: Node, text: str, pos: int, final: bool) -> tuple[Move | None, int]:
        """The marker at the cursor that comes instead of a run, if there is one, or what to wait for."""
        move = next((move for literal, move in node.ordered if text.startswith(literal, pos)), None)
        if (move is None or move.extend) and not final and len(text) - pos < node.longest and text[pos:] in node.prefixes:
            return None, MORE
        if move is None or move.guard is None:
            return move, YES
        verdict = self._check(move, text, pos, pos, final)
        return (move if verdict == YES else None), verdict

    def _find(self, node: Node, text: str, pos: int, final: bool, match: Any) -> tuple[int, Move | None, int]:
        """Where the run ends, by which marker; or up to where it is certain to be run, and what the rest waits for.

        `match` is the first place where a marker might be.
        """
        size = len(text)
        while match is not None:
            found = match.start()
            move = node.closers[match.group()]
            if move.extend and not final and size - found < node.longest and text[found:] in node.prefixes:
                return found, None, MORE
            if move.tentative and self.tried:
                verdict = NO
            elif move.guard is None or (move.guard is Guard.FOLLOW and text.startswith(move.follow, match.end())):
                return found, move, YES
            elif move.guard is Guard.FOLLOW:
                verdict = self._check_follow(move, text, match.end(), final)
            else:
                verdict = self._check(move, text, pos, found, final)
            if verdict == YES:
                return found, move, YES
            if verdict >= MORE:
                return found, None, verdict
            match = node.search(text, found + 1) if size - found < LONG else search_far(node, text, found + 1)
        held = hold(node, text, pos)
        if not final or pos < held < size:  # in the end what is certain comes first, too, and then the beginning of a marker
            return held, None, MORE
        if held < size and node.run in ("CONTENT", "REASONING"):
            self.sink.cut_marker(self.offset + held, self.offset + size)
        return size, None, MORE

    # -- whether a marker counts

    def _check(self, move: Move, text: str, pos: int, found: int, final: bool) -> int:
        after = found + len(move.literal)
        guard = move.guard
        if guard is Guard.FOLLOW:
            return self._check_follow(move, text, after, final)
        if guard is Guard.END:
            if _NON_BLANK(text, after):
                return NO
            return YES if final else BLANKS
        if guard is Guard.QUOTE:
            quote = text[found - 1] if found > pos else self.last[-1:]
            if not quote or quote not in QUOTES:
                return YES
            if after == len(text):
                return YES if final else MORE
            return NO if text[after] == quote else YES
        return self._check_name(move, text, pos, found, after, final)

    def _check_follow(self, move: Move, text: str, after: int, final: bool) -> int:
        found = after - len(move.literal)
        if text.startswith(move.follow, after):
            return YES
        if not self.nodes[move.target].strict:
            match = _NON_BLANK(text, after)
            if match is None:
                return BLANKS if not final else YES if move.end_follows else NO
            after = match.start()
            if text.startswith(move.follow, after):
                return YES
        elif after == len(text):
            return MORE if not final else YES if move.end_follows else NO
        if not final and len(text) - after < 1024 and text[after:] in move.follow_prefixes:
            self.hope, self.hope_at = move.follow_prefixes, after - found
            return MORE
        return NO

    def _check_name(self, move: Move, text: str, pos: int, found: int, after: int, final: bool) -> int:
        assert move.guard is not None
        if not move.name_ends:  # the name stands before the marker
            name = self.sink.name_so_far(move.guard) + text[pos:found]
            return YES if name in self.sink.known_names(move.guard, name) else NO
        rest = text[after : after + 1024]
        verdict = NO
        for name in self.sink.known_names(move.guard, ""):
            for end in move.name_ends:
                if text.startswith(name + end, after):
                    return YES
                if not final and len(rest) < len(name + end) and (name + end).startswith(rest):
                    verdict = MORE
        return verdict

    # -- text where none belongs

    def _between(self, node: Node, text: str, pos: int, final: bool) -> tuple[int, bool]:
        """No marker at the cursor: pass over layout and text up to the next one; where that is, and whether there is one."""
        size = len(text)
        if node.skips_blanks:
            match = _NON_BLANK(text, pos)
            pos = match.start() if match is not None else size
        if pos == size or (size - pos < node.longest and text[pos:] in node.prefixes):  # the beginning of a marker
            if final:
                self._end_stray(self.offset + pos)
                if pos < size and not node.strict:
                    self.sink.cut_marker(self.offset + pos, self.offset + size)
            return (size if final and not node.strict else pos), False
        if node.strict:
            raise Unexpected(self.offset + pos, node.expected)
        self.sink.failed = True
        match = node.search(text, pos)
        end = match.start() if match is not None else hold(node, text, pos)
        if self.stray_from is None:
            self.stray_from = self.offset + pos
        if final and match is None:
            self._end_stray(self.offset + end)
            if end < size:
                self.sink.cut_marker(self.offset + end, self.offset + size)
            end = size
        return end, match is not None

    def _end_stray(self, end: int) -> None:
        if self.stray_from is not None:
            self.sink.stray(self.stray_from, end)
            self.stray_from = None

    # -- calls that reasoning runs into

    def _try(self, move: Move, text: str, offset: int, final: bool) -> None:
        """Parse on as if the call counted, and keep the text in case that it does not."""
        self.open = None
        sink = self.sink.trial()
        if sink is None:
            self.tried = True
            self._run(text, final)
            return
        trial = Machine(self.nodes, sink, len(self.starts), state=move.target, offset=offset + len(move.literal))
        trial.starts = self.starts.copy()
        if move.before:
            trial._apply(move.before, offset)
        trial.starts[move.depth] = offset
        trial._apply(move.ops, trial.offset)
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
        closers = [move.literal for move in node.closers.values() if move.guard is Guard.QUOTE]
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
        end = self.offset + len(self.pending)
        self.sink.ended()
        self._apply(node.end, end)
