"""Results that are kept: conversations share their tools, and what was found of one need not be found again.

Rules of this module: results are kept by content, never by identity, of moderate sizes only and not too many of them, so that
no input fills the memory.
"""

import marshal
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

KEPT = 4096  #: results that are kept of one function
KEPT_SIZE = 1 << 14  #: bytes, or characters, that the input of a kept result may have

Found = TypeVar("Found")


def kept_by_content(find: Callable[[Mapping[str, Any]], Found]) -> Callable[[Mapping[str, Any]], Found]:
    """The same function of JSON objects with its results kept; they are shared, so nobody may change them."""
    known = lru_cache(KEPT)(lambda key: find(marshal.loads(key)))

    def found(value: Any) -> Found:
        try:
            key = marshal.dumps(value, 2)  # tells 1, 1.0 and True apart; version 2 spells equal values alike
        except ValueError:  # a mapping of another kind, or too deep
            return find(value)
        return known(key) if len(key) <= KEPT_SIZE else find(value)

    return found


def kept_by_text(find: Callable[[str], Found]) -> Callable[[str], Found]:
    """The same for a function of a text."""
    known = lru_cache(KEPT)(find)

    def found(text: str) -> Found:
        return known(text) if len(text) <= KEPT_SIZE else find(text)

    return found
