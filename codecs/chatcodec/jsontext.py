"""JSON text to values and back: the one place that knows JSON's decoders and encoders.

Rules of this module:

* what is read is RFC 8259: no NaN, no Infinity, no control characters in strings, no halves of surrogate pairs;
* nothing is read twice where once will do.
"""

import json
import re
from json.encoder import encode_basestring
from math import isinf
from typing import Any

from pydantic_core import from_json

STRING_END = re.compile(r'["\\]').search  #: finds the only characters that count inside a JSON string
_HALF = re.compile("[\ud800-\udfff]")  #: half of a surrogate pair

_SHORT = 2048  #: characters up to which it is quicker to look for `\\u` in a text than at each string of its value

quoted = encode_basestring  #: a text as a JSON string
_ENCODE = json.JSONEncoder(ensure_ascii=False).encode


def dumps(value: Any) -> str:
    """JSON as chat templates write it: `", "` and `": "`, insertion order, nothing escaped that need not be."""
    kind = type(value)
    if kind is str:
        return quoted(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return repr(value)
    return _ENCODE(value)


def escaped(text: str) -> str:
    """A piece of text as it stands inside a JSON string; pieces can be joined."""
    return quoted(text)[1:-1]


def read_json(text: str) -> Any:
    """JSON as RFC 8259 has it, and no integer longer than Python prints.  Raises ValueError."""
    return from_json(text, allow_inf_nan=False)


def read_json_mended(text: str) -> Any:
    """JSON whose strings hold halves of surrogate pairs, each replaced by U+FFFD.  Raises ValueError for all else."""
    if "\\u" not in text:
        raise ValueError("no escape that could be mended")
    try:
        value = json.loads(text, parse_constant=_no_constant)
        return _mended(value)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return _HALF.sub("\ufffd", value)
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    return value


def read_document(text: str) -> Any:
    """The value of a JSON text without oddities, in one pass.

    Raises ValueError where there are any: a member that comes twice or half of a surrogate pair is for others to look at.
    """
    try:
        value, end = _DOCUMENT(text)
        if "\\" in text and (len(text) > _SHORT or "\\u" in text) and _has_half(value):
            raise ValueError("half of a surrogate pair")
    except RecursionError:
        raise ValueError("nested too deep") from None
    if end < len(text) and not text[end:].isspace():
        raise ValueError("more than a value")
    return value


def _has_half(value: Any) -> bool:
    """Whether a string in a value holds half of a surrogate pair.  ASCII, which Python knows a string to be, holds none."""
    values = [value]
    for one in values:
        kind = type(one)
        if kind is str:
            if not one.isascii() and _HALF.search(one):
                return True
        elif kind is dict:
            values += one
            values += one.values()
        elif kind is list:
            values += one
    return False


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a member that comes twice")
    return made


def _float(digits: str) -> float:
    number = float(digits)
    if isinf(number):
        raise ValueError(f"{digits} is more than a number can hold")
    return number


_DOCUMENT = json.JSONDecoder(object_pairs_hook=_members, parse_float=_float, parse_constant=_no_constant).raw_decode
