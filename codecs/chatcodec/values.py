"""Argument text and typed values, by JSON Schema.

Rules of this module:

* a schema says which JSON types a value may have (`types_of`); nothing else of it is checked here;
* text of a declared string is that text; a union with string stays text unless it is null; everything else is read as
  JSON, and `True`, `False` and `None` as templates write them; what does not fit stays text and is named;
* without a type, an object or array that would be written back the same is read, and scalars stay text;
* integers are exact, and a number that no double can hold says so.

Sources: JSON Schema 2020-12 for the keywords, RFC 6901 for references, Python's type names because tool definitions use them as types.
"""

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from .jsontext import dumps, read_json, read_json_mended
from .messages import Function

#: What `type` may say, and what that means in JSON.
TYPE_NAMES = {name: name for name in ("string", "number", "integer", "boolean", "null", "object", "array")} | {
    "str": "string",
    "float": "number",
    "int": "integer",
    "bool": "boolean",
    "dict": "object",
    "list": "array",
}
ALL_TYPES = frozenset(TYPE_NAMES.values())
_SINGLE = {name: frozenset((name,)) for name in ALL_TYPES}
STRING = _SINGLE["string"]
_NARROWING = frozenset(("$ref", "anyOf", "oneOf", "allOf", "enum", "const", "nullable"))  #: what else may say a type
_WORDS: dict[str, bool | None] = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_NULL_WORDS = ("null", "None")
_LONG_NUMBER = re.compile(r"[0-9](?:[0-9.]){15,}|[eE][+-]?[0-9]{3}").search
_MAX_REFERENCES = 32
_INDEX_DIGITS = 9  #: Python reads no more than a few thousand

Types = frozenset[str]

Reading = tuple[Any, str | None]
"""A value read from text, and the code of what was odd about it, if anything."""


# ------------------------------------------------------------------------------------------------------------- schemas


def types_of(schema: Any, root: Any = None) -> Types | None:
    """The JSON types that a schema allows, or None if it does not say.  `root` is where `$ref` is looked up."""
    return _types_of(schema, root, {}, 0)


def _types_of(schema: Any, root: Any, seen: dict[int, tuple[Any, Types | None]], depth: int) -> Types | None:
    """`seen` has each schema, by identity, with its types: none until they are known, so a reference that comes round says nothing."""
    if (type(schema) is not dict and not isinstance(schema, Mapping)) or depth > _MAX_REFERENCES:
        return None
    declared = schema.get("type")
    if isinstance(declared, str) and declared in TYPE_NAMES and _NARROWING.isdisjoint(schema):
        return _SINGLE[TYPE_NAMES[declared]]
    if id(schema) in seen:
        return seen[id(schema)][1]
    seen[id(schema)] = schema, None
    found: list[Types | None] = []
    if isinstance(declared, str):
        found.append(frozenset((TYPE_NAMES[declared],)) if declared in TYPE_NAMES else None)
    elif isinstance(declared, (list, tuple)):
        found.append(frozenset(TYPE_NAMES[name] for name in declared if isinstance(name, str) and name in TYPE_NAMES) or None)
    if isinstance(schema.get("$ref"), str):
        found.append(_types_of(resolve(schema["$ref"], root), root, seen, depth + 1))
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), (list, tuple)) and schema[key]:
            branches = [_types_of(branch, root, seen, depth + 1) for branch in schema[key]]
            found.append(None if None in branches else frozenset().union(*(branch for branch in branches if branch)))
    if isinstance(schema.get("allOf"), (list, tuple)):
        found += [_types_of(branch, root, seen, depth + 1) for branch in schema["allOf"]]
    if isinstance(schema.get("enum"), (list, tuple)) and schema["enum"]:
        found.append(frozenset(map(json_type, schema["enum"])))
    if "const" in schema:
        found.append(frozenset((json_type(schema["const"]),)))
    known = [types for types in found if types is not None]
    if not known:
        return None
    types = known[0]
    for more in known[1:]:
        types = _both(types, more)
    if schema.get("nullable") is True:
        types |= {"null"}
    seen[id(schema)] = schema, types
    return types


def _both(one: Types, other: Types) -> Types:
    """What two demands leave: an integer is a number too."""
    both = one & other
    if ("number" in one and "integer" in other) or ("integer" in one and "number" in other):
        both |= {"integer"}
    return both or one


def resolve(reference: str, root: Any) -> Any:
    """What a reference inside the document, `#` or `#/$defs/X`, points to; None if it points nowhere that is known."""
    pointer = reference.removeprefix("#")
    if pointer == reference or (pointer and not pointer.startswith("/")):  # another document, or an anchor
        return None
    if "%" in pointer:
        from urllib.parse import unquote

        pointer = unquote(pointer)
    target = root
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping):
            target = target.get(step)
        elif isinstance(target, (list, tuple)) and len(step) <= _INDEX_DIGITS and step.isdecimal() and int(step) < len(target):
            target = target[int(step)]
        else:
            return None
    return target


def json_type(value: Any) -> str:
    """The JSON type of a Python value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array"


class Signature(NamedTuple):
    """What a tool's schema says of its arguments."""

    properties: Mapping[str, Any]
    additional: Any
    root: Any

    def types(self, argument: str) -> Types | None:
        """The JSON types that an argument may have, or None if the schema does not say."""
        schema = self.properties.get(argument, self.additional)
        if type(schema) is dict and schema.get("type") == "string" and _NARROWING.isdisjoint(schema):
            return STRING  # by far the most frequent
        return types_of(schema, self.root)


NO_SIGNATURE = Signature({}, None, None)


def signature_of(function: Function) -> Signature:
    """The signature of a tool's function; an odd one has no types."""
    root: Any = function.get("parameters")
    parameters = root
    for _ in range(_MAX_REFERENCES) if type(root) is not dict or "$ref" in root else ():
        if type(parameters) is not dict and not isinstance(parameters, Mapping):
            return NO_SIGNATURE
        if not isinstance(parameters.get("$ref"), str):
            break
        parameters = resolve(parameters["$ref"], root)
    properties = parameters.get("properties")
    if type(properties) is not dict and not isinstance(properties, Mapping):
        properties = {}
    return Signature(properties, parameters.get("additionalProperties"), root)


# -------------------------------------------------------------------------------------------------------------- reading


def read_value(text: str, types: Types | None) -> Reading:
    """The value that a text stands for where a schema allows `types` (None: it does not say)."""
    if types is None:
        return _read_undeclared(text)
    if "string" in types:
        if "null" in types and text in _NULL_WORDS:
            return None, "ambiguous_null"
        return text, None
    if text in _WORDS:
        return _fit(_WORDS[text], text, types)
    try:
        return _fit(read_json(text), text, types)
    except ValueError:
        pass
    try:
        value, code = _fit(read_json_mended(text), text, types)
    except ValueError:
        return text, "type_mismatch"
    return value, code or "lone_surrogate"


def _fit(value: Any, text: str, types: Types) -> Reading:
    kind = json_type(value)
    if kind == "integer" and ("integer" in types or "number" in types):
        return value, None
    if kind == "number":
        if math.isinf(value):
            return text, "type_mismatch"
        if "number" not in types:
            if "integer" not in types or not value.is_integer():
                return text, "type_mismatch"
            try:
                return int(Decimal(text)), "float_to_int"  # exact, where the double is not
            except (InvalidOperation, ValueError, OverflowError):
                return text, "type_mismatch"
        return value, "precision_lost" if _LONG_NUMBER(text) and _inexact(text) else None
    if kind not in types:
        return text, "type_mismatch"
    if kind in ("object", "array") and _LONG_NUMBER(text):
        return _fit_numbers(value, text)
    return value, None


def _fit_numbers(value: Any, text: str) -> Reading:
    """An object or array with long numbers in it: whether all of them are held exactly, or at all."""
    odd: list[str] = []

    def number(digits: str) -> float:
        if math.isinf(float(digits)):
            raise ValueError
        if _inexact(digits):
            odd.append(digits)
        return float(digits)

    try:
        json.loads(text, parse_float=number)
    except (ValueError, RecursionError):
        return text, "type_mismatch"
    return value, "precision_lost" if odd else None


def _inexact(digits: str) -> bool:
    try:
        return Decimal(digits) != Decimal(repr(float(digits)))
    except (InvalidOperation, ValueError):
        return False


def _read_undeclared(text: str) -> Reading:
    if text[:1] in ("{", "["):
        try:
            value = read_json(text)
            if dumps(value) == text:
                return value, None
        except (ValueError, RecursionError):
            pass
    return text, None


def guess_value(text: str) -> Any:
    """The JSON value that a text stands for, if it would be written back the same; else the text."""
    try:
        value = read_json(text)
        return value if dumps(value) == text else text
    except (ValueError, RecursionError):
        return text
