"""JSON text to values and back: the one place that knows JSON's decoders and encoders.

Rules of this module:

* what is read is RFC 8259: no NaN, no Infinity, no control characters in strings, no halves of surrogate pairs;
* what nests deeper than `DEEPEST` is not read, so that the same is read however deep the reader stands;
* nothing is read twice where once will do.
"""

import json
import re
from json.encoder import encode_basestring
from math import isinf
from typing import Any

from pydantic_core import from_json

STRING_END = re.compile(r'["\\]').search  #: finds the only characters that count inside a JSON string
DEEPEST = 200  #: objects and lists in each other, of what is sure to be read: the limit of pydantic's decoder
_HALF = re.compile("[\ud800-\udfff]")  #: half of a surrogate pair
HEX, HIGH, LOW = r"[0-9a-fA-F]", r"[dD][89abAB][0-9a-fA-F]{2}", r"[dD][c-fC-F][0-9a-fA-F]{2}"  #: behind the `\u` of an escape
#: An escape, or a pair that makes one character; half a pair is `lone` once it is certain that the other does not come.
_ESCAPE = re.compile(rf"\\u{HIGH}\\u{LOW}|(?P<lone>\\u{HIGH}(?!\\?\Z|\\u{HEX}{{0,3}}\Z)|\\u{LOW})|\\.", re.DOTALL).sub

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
    try:
        return from_json(text, allow_inf_nan=False)
    except TypeError:
        raise ValueError("half of a surrogate pair") from None


def is_readable(text: str) -> bool:
    """Whether a JSON text that was written here is read back, and not refused for its depth or for half of a surrogate pair."""
    if half_at(text) is None and text.count("{") + text.count("[") <= DEEPEST:
        return True
    try:
        read_json(text)
    except ValueError:
        return False
    return True


def read_json_mended(text: str) -> Any:
    """JSON with halves of surrogate pairs, escaped or not, each read as U+FFFD.  Raises ValueError for all else."""
    mended = mend_halves(text)
    if mended == text:
        raise ValueError("no half of a pair that could be mended")
    return read_json(mended)


def mend_halves(text: str) -> str:
    """The inside of JSON strings with U+FFFD for each half of a surrogate pair, but for an escape that may yet get its other half."""
    if half_at(text) is not None:
        text = _HALF.sub("\ufffd", text)
    return _ESCAPE(_mended, text) if "\\" in text else text


def _mended(match: re.Match[str]) -> str:
    return "\\ufffd" if match["lone"] else match[0]


def half_at(text: str) -> int | None:
    """Where half of a surrogate pair stands, which no UTF-8 can hold; None if there is none."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return error.start
    return None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def read_document(text: str) -> Any:
    """The value of a JSON text without oddities, in one pass.

    Raises ValueError where there are any: a member that comes twice or half of a surrogate pair is for others to look at.
    """
    try:
        value, end = _DOCUMENT(text)
        if half_at(text) is not None or ("\\" in text and (len(text) > _SHORT or "\\u" in text) and _has_half(value)):
            raise ValueError("half of a surrogate pair")
        if text.count("{") + text.count("[") > DEEPEST:
            read_json(text[:end])  # which nests no deeper
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
