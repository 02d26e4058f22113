"""Where JSON runs end: at the first closer outside JSON strings.

Rules of this module:

* a string that never closes would swallow the rest, so such a run is read once more, without strings, to its first closer;
* the run behind that may meet the same string again, and the next: what was inside a string of a run that did not end is
  remembered, and a run that gets there too is at once known not to end, so that all of them together cost linear time.
"""

import re
from typing import TYPE_CHECKING, Any

from .jsontext import STRING_END, read_document
from .nodes import Move, Node
from .search import hold
from .sink import Sink

if TYPE_CHECKING:
    from .machine import Machine

#: Verdicts on a marker: it counts, it does not, more text decides, more than blanks decides, handed-on text is to be read again,
#: it counts and ends a run that was begun, though nothing is left in it.
YES, NO, MORE, BLANKS, AGAIN, BEGUN = range(6)
#: A whole JSON string.  Possessive, so that one without an end costs no more than its length.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL).match


def read_whole(sink: Sink, node: Node, text: str, pos: int, match: Any) -> tuple[int, Move, int] | None:
    """A JSON run that is whole up to the first closer: by far the most frequent, and read only once."""
    found, move = match.start(), node.closers[match[0]]
    if move.guard is not None:
        return None
    spell = sink.spell
    try:
        sink.document = (read_document(text[pos:found] if spell is None else spell(text[pos:found])),)
    except ValueError:
        return None
    return found, move, YES


def find_end(machine: "Machine", node: Node, text: str, pos: int, final: bool) -> tuple[int, Move | None, int]:
    """Where a JSON run ends that may have begun before, by which move, and the verdict on that."""
    at, size = pos, len(text)
    opened = pos  # where the string began that is open, if one is
    strings: list[tuple[int, int]] = []
    while True:
        if machine.quoted:
            match = STRING_END(text, at)
            if match is None:
                break
            at = match.end()
            if match.group() == "\\":
                if at == size and not final:
                    return at - 1, None, MORE
                at += 1
            else:
                machine.quoted = False
                strings.append((opened, at - 1))
            continue
        quote = text.find('"', at)
        match = node.search(text, at, size if quote < 0 else quote)
        if match is not None:
            move, found = node.closers[match.group()], match.start()
            if move.extend and not final and size - found < node.longest and text[found:] in node.prefixes:
                return found, None, MORE
            verdict = YES if move.guard is None else machine._check(move, text, pos, found, final)
            if verdict != NO:
                return found, move if verdict == YES else None, verdict
            at = match.end()
        elif quote < 0:
            return size if final else hold(node, text, max(at, pos)), None, MORE
        elif final and _is_unclosed(machine, quote):
            break
        elif string := _STRING(text, quote):
            at = string.end()
            strings.append((quote, at - 1))
        else:
            opened, at, machine.quoted = quote, quote + 1, True
    if not final:
        return size, None, MORE
    # a string that never closed: read once more, to the first closer
    if machine.quoted:
        strings.append((opened, size))
    machine.quoted = False
    earlier = "" if node.kind == 1 else machine.sink.json_so_far()
    start = machine.offset + pos - len(earlier)
    _note_unclosed(machine, start, machine.offset + size, strings)
    whole = earlier + text[pos:]
    match = node.search(whole)
    if match is None:
        return size, None, MORE
    move, end = node.closers[match.group()], match.start()
    if not earlier:
        return pos + end, move, BEGUN if node.kind == 1 else YES
    machine.sink.shorten(whole[:end], start)
    machine.rest = whole[end:], start + end
    return 0, move, AGAIN


def _is_unclosed(machine: "Machine", quote: int) -> bool:
    """Whether a run that did not end was inside a string behind this quote: one that opens a string here ends as little."""
    if machine.unclosed is None:
        return False
    start, inside = machine.unclosed
    at = machine.offset + quote - start
    return at >= 0 and inside[at] == 1


def _note_unclosed(machine: "Machine", start: int, end: int, strings: list[tuple[int, int]]) -> None:
    if machine.unclosed is None:
        machine.unclosed = start, bytearray(end - start)
    first, inside = machine.unclosed
    for opened, closed in strings:
        one, other = machine.offset + opened - first, machine.offset + closed - first
        inside[one:other] = b"\x01" * (other - one)
