"""What Arrow does to structured chat, undone: rows that went through a table with one type for all of them.

A table knows one struct for the arguments of all tools, so each call comes back with the keys of all the others, null; the
same happens to tool declarations.  A column that holds integers and fractions comes back as fractions, and keys come back
in the order of the struct.

Rules of this module:

* the tool's schema decides, and only where it can: a null that may be the caller's own is kept and named `ambiguous_null`;
* JSON text is never damaged that way, so it is not touched: only objects and arrays that the row holds as such are;
* nothing is changed in place, and what needs no repair is given back as it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import Loss
from ..kept import kept_by_content
from ..messages import function_of
from ..values import resolve, types_of

_WHOLE = frozenset(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"))
_BOUNDS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "default", "const"))
_OWN = frozenset(("default", "const", "enum", "examples", "example"))  #: keywords whose value is the author's own data
_NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))  #: keywords that hold schemas by name


class Repair(NamedTuple):
    """Damage that was undone, or could not be: one of `errors.REPAIRS`, where, and the names concerned."""

    code: str
    path: str
    detail: str | None = None

    def __str__(self) -> str:
        return f"{self.code} at {self.path}" + (f" ({self.detail})" if self.detail else "")


# ----------------------------------------------------------------------------------------------------------- arguments


class Known(NamedTuple):
    """What the tools of a row say: their functions by name, and the arguments that any of them has."""

    functions: Mapping[str, Mapping[str, Any]]
    names: frozenset[str]


def known(tools: Sequence[Mapping[str, Any]] | None) -> Known:
    """The functions of tools that have a name."""
    functions: dict[str, Mapping[str, Any]] = {}
    names: set[str] = set()
    for tool in tools or ():
        function = function_of(tool)
        name = function.get("name")
        if isinstance(name, str):
            functions[name] = function
        properties = _mapping(_mapping(function.get("parameters")).get("properties"))
        names.update(name for name in properties if isinstance(name, str))
    return Known(functions, frozenset(names))


def may_be_damaged(arguments: Mapping[str, Any]) -> bool:
    """Whether arguments hold anything that Arrow could have made; cheap."""
    for value in arguments.values():
        kind = type(value)
        if value is None or kind is float or (kind is not str and kind is not int and kind is not bool):
            return True
    return False


def mend_arguments(
    arguments: Mapping[str, Any], name: str, tools: Known, path: str, repairs: list[Repair], losses: list[Loss]
) -> dict[str, Any]:
    """The arguments of one call without padding, and with integers where its tool declares them."""
    function = tools.functions.get(name)
    root: Any = None if function is None else _mapping(function.get("parameters"))
    notes = _Notes([], [], [], tools.names)
    mended = _mend_object(arguments, None if root is None else [root], root, "", notes, 0)
    for code, names in (("null_padding_removed", notes.removed), ("float_to_int", notes.whole), ("ambiguous_null", notes.kept)):
        if names:
            repairs.append(Repair(code, path, ",".join(names)))
    if notes.removed and root is not None:
        declared: dict[str, int] = {}
        for view in _views([root], root):
            for key in _mapping(view.get("properties")):
                declared.setdefault(key, len(declared))
        places = [declared[key] for key in mended if key in declared]
        if places != sorted(places):  # the struct's order may have taken the place of the caller's
            losses.append(Loss("key_order_lost", path, name))
    return mended


class _Notes(NamedTuple):
    removed: list[str]
    whole: list[str]
    kept: list[str]
    elsewhere: frozenset[str]  #: arguments of any tool of the row


def _mend_object(value: Mapping[str, Any], schemas: list[Any] | None, root: Any, where: str, notes: _Notes, depth: int) -> dict[str, Any]:
    views = None if schemas is None else list(_views(schemas, root))
    required = frozenset[str]() if views is None else _required(views)
    mended: dict[str, Any] = {}
    for key, inner in value.items():
        place = f"{where}{key}"
        if inner is None:
            if views is not None and _is_padding(key, views, required, root, notes.elsewhere if depth == 0 else None):
                notes.removed.append(place)
                continue
            if views is None or not _must_be_null(key, views, required, root):
                notes.kept.append(place)
            mended[key] = None
        elif type(inner) in (float, dict, list) or isinstance(inner, (Mapping, list, tuple)):
            mended[key] = _mend_value(inner, None if views is None else _schemas_of(key, views), root, place, notes, depth + 1)
        else:
            mended[key] = inner
    return mended


def _mend_value(value: Any, schemas: list[Any] | None, root: Any, place: str, notes: _Notes, depth: int) -> Any:
    if isinstance(value, float):
        types = _types(schemas, root)
        if types is not None and "integer" in types and "number" not in types and value.is_integer():
            notes.whole.append(place)
            return int(value)
        return value
    if isinstance(value, Mapping):
        return _mend_object(value, schemas or None, root, f"{place}.", notes, depth)
    items = [view["items"] for view in _views(schemas or [], root) if isinstance(view.get("items"), Mapping)] or None
    return [
        _mend_value(inner, items, root, f"{place}[{index}]", notes, depth + 1)
        if isinstance(inner, (float, Mapping, list, tuple))
        else inner
        for index, inner in enumerate(value)
    ]


def _views(schemas: Sequence[Any], root: Any) -> Iterator[Mapping[str, Any]]:
    """The schemas themselves and all that they refer to or choose between, each once."""
    seen = {}  # by identity, and kept, since what is gone leaves its identity to another
    pending = [*reversed(schemas)]
    while pending:
        schema = pending.pop()
        if id(schema) in seen or not isinstance(schema, Mapping):
            continue
        seen[id(schema)] = schema
        yield schema
        more = [resolve(schema["$ref"], root)] if isinstance(schema.get("$ref"), str) else []
        for key in ("anyOf", "oneOf", "allOf"):
            if isinstance(schema.get(key), (list, tuple)):
                more += schema[key]
        pending += reversed(more)


def _schemas_of(key: str, views: Sequence[Mapping[str, Any]]) -> list[Any]:
    """What is declared of a member of an object."""
    named = [view["properties"][key] for view in views if key in _mapping(view.get("properties"))]
    return named or [view["additionalProperties"] for view in views if isinstance(view.get("additionalProperties"), Mapping)]


def _types(schemas: list[Any] | None, root: Any) -> frozenset[str] | None:
    """The types that any of the schemas allows; None if one does not say, or there is none."""
    found = [types_of(schema, root) for schema in schemas or ()]
    return None if not found or None in found else frozenset().union(*(types for types in found if types))


def _is_padding(key: str, views: list[Mapping[str, Any]], required: frozenset[str], root: Any, elsewhere: frozenset[str] | None) -> bool:
    """Whether a null can only be padding: nothing allows it, and nothing asks for the key.

    `elsewhere`: for the arguments themselves, those of the row's other tools.
    """
    if any(key in _mapping(view.get("properties")) for view in views):
        types = _types(_schemas_of(key, views), root)
        return types is not None and "null" not in types and key not in required
    for view in views:
        if view.get("additionalProperties") is True or isinstance(view.get("patternProperties"), Mapping):
            return False
        if isinstance(view.get("additionalProperties"), Mapping):
            types = types_of(view["additionalProperties"], root)
            return types is not None and "null" not in types
    if any(isinstance(view.get("properties"), Mapping) or view.get("additionalProperties") is False for view in views):
        return True
    if elsewhere is None:
        return False
    return key in elsewhere or not any(view.get("type") for view in views)  # a tool that declares no parameters has none


def _must_be_null(key: str, views: list[Mapping[str, Any]], required: frozenset[str], root: Any) -> bool:
    """Whether a null can only be the caller's own: the key has to be there, and may be null."""
    types = _types(_schemas_of(key, views), root)
    return types is not None and "null" in types and key in required


def _required(views: list[Mapping[str, Any]]) -> frozenset[str]:
    listed = (view["required"] for view in views if isinstance(view.get("required"), (list, tuple)))
    return frozenset(name for names in listed for name in names if isinstance(name, str))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# --------------------------------------------------------------------------------------------------------------- tools


def mend_tools(tools: list[Any], path: str, repairs: list[Repair]) -> list[Any]:
    """Tool declarations without padding.  A null under `default`, `const` and among `enum` is its author's own."""
    mended = []
    for index, tool in enumerate(tools):
        if not _is_padded(tool):
            mended.append(tool)
            continue
        removed: list[str] = []
        kept: list[str] = []
        whole: list[str] = []
        made = _mend_schema(tool, "", False, (removed, kept), 0)
        mended.append(_whole_numbers(made, None, "", whole, 0))  # where nulls are a table's work, numbers went through it too
        names = (("null_padding_removed", removed), ("float_to_int", whole), ("ambiguous_null", kept))
        repairs.extend(Repair(code, f"{path}[{index}]", ",".join(found)) for code, found in names if found)
    return mended


@kept_by_content
def _is_padded(tool: Any) -> bool:
    notes: tuple[list[str], list[str]] = [], []
    _mend_schema(tool, "", False, notes, 0)
    return bool(notes[0])


def _mend_schema(value: Any, where: str, by_name: bool, notes: tuple[list[str], list[str]], depth: int) -> Any:
    """`by_name`: the keys are names that the author chose, and no keywords."""
    if isinstance(value, Mapping):
        mended = {}
        for key, inner in value.items():
            place = f"{where}.{key}" if where else str(key)
            own = key in _OWN and not by_name
            if inner is None and not (own and key in ("default", "const")):
                notes[0].append(place)
                continue
            if inner is None:
                notes[1].append(place)
            mended[key] = inner if own else _mend_schema(inner, place, key in _NAMED and not by_name, notes, depth + 1)
        return mended
    if isinstance(value, (list, tuple)):
        return [_mend_schema(inner, f"{where}[{index}]", False, notes, depth + 1) for index, inner in enumerate(value)]
    return value


def _whole_numbers(value: Any, types: frozenset[str] | None, where: str, notes: list[str], depth: int) -> Any:
    """Bounds, defaults and choices of integers as integers again."""
    if isinstance(value, list):
        return [_whole_numbers(inner, None, f"{where}[{index}]", notes, depth + 1) for index, inner in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    types = types_of(value) if "type" in value else None
    integers = types is not None and "integer" in types and "number" not in types
    mended = {}
    for key, inner in value.items():
        place = f"{where}.{key}" if where else str(key)
        if isinstance(inner, float) and inner.is_integer() and (key in _WHOLE or (integers and key in _BOUNDS)):
            notes.append(place)
            inner = int(inner)
        elif key == "enum" and integers and isinstance(inner, (list, tuple)) and any(isinstance(one, float) for one in inner):
            notes.append(place)
            inner = [int(one) if isinstance(one, float) and one.is_integer() else one for one in inner]
        elif key not in _OWN:
            inner = _whole_numbers(inner, None, place, notes, depth + 1)
        mended[key] = inner
    return mended


# -------------------------------------------------------------------------------------------------------- tool results


def in_call_order(messages: list[dict[str, Any]], path: str, repairs: list[Repair]) -> list[dict[str, Any]]:
    """Messages with each group of tool results in the order of the calls, for shapes where only the order pairs them.

    A group is put in order only if it is complete and its ids are unambiguous; any other is left for the losses to name.
    """
    ordered = messages
    for index, message in enumerate(messages):
        calls = message.get("tool_calls")
        if not calls or len(calls) < 2 or message.get("role") != "assistant":
            continue
        end = index + 1
        while end < len(messages) and messages[end].get("role") == "tool":
            end += 1
        wanted = [call.get("id") for call in calls]
        given = [result.get("tool_call_id") for result in messages[index + 1 : end]]
        if (
            wanted != given
            and len(set(wanted)) == len(wanted)
            and None not in wanted
            and sorted(map(str, wanted)) == sorted(map(str, given))
        ):
            by_id = dict(zip(given, messages[index + 1 : end], strict=True))
            if ordered is messages:
                ordered = list(messages)
            ordered[index + 1 : end] = [by_id[call_id] for call_id in wanted]
            repairs.append(Repair("tool_results_reordered", f"{path}[{index + 1}]"))
    return ordered
