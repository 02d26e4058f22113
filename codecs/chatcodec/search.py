"""Where the markers of a state may stand in a text, found fast.

Rules of this module: it looks and decides nothing; what it costs grows with the text and not with what is in it.
"""

from typing import Any

from .nodes import Node

LONG = 8192  #: characters, from which on `search_far` is faster than the pattern alone
_GAP = 1024  #: characters between first characters of markers, below which it is the slower way


def search_far(node: Node, text: str, pos: int) -> Any:
    """The next marker in much text: finding one character is ten times as fast as finding a pattern, where it is rare."""
    first, tried, at = node.first, 0, pos
    while first is not None:
        at = text.find(first, at)
        if at < 0:
            return None
        match = node.at(text, at)
        if match is not None:
            return match
        at, tried = at + 1, tried + 1
        if tried > 8 and tried * _GAP > at - pos:
            break
    return node.search(text, at)


def hold(node: Node, text: str, pos: int) -> int:
    """Where the end of the text begins that may be the start of a marker."""
    size, first = len(text), node.first
    start = size - node.longest + 1
    if start < pos:
        start = pos
    if first is not None:
        at = text.find(first, start)
        while at >= 0:
            if text[at:] in node.endings:
                return at
            at = text.find(first, at + 1)
        return size
    return next((at for at in range(start, size) if text[at:] in node.endings), size)
