"""Hypothesis strategies for what messages are made of: texts, JSON values, JSON Schemas and tools.

Rules of this module:

* a text likes trouble.  `pieces` are what it may be made of besides: beginnings and ends of a format's markers (`pieces_of`),
  and whole markers only for those who ask for forged text;
* a format is known only by its markers (`chatcodec.grammar.markers`) and by what it refuses to render;
* no lone surrogates: they are no text.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from ..errors import RenderError
from ..formats import get_format
from ..grammar import markers

Json = Any
Tools = list[dict[str, Any]]
Pieces = tuple[str, ...]

# ------------------------------------------------------------------------------------------------------------------ text

WORDS = ("river", "lamp", "Answer.", "a", "I will look it up.", "여름", "naïve", "e\u0301", "ß")
BLANKS = (
    " ", "  ", "\t", "\n", "\n\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x1f", "\x85", "\xa0", "\u2003", "\u2028", "\u2029", "\u3000",
    "\u200b", "\ufeff",  # these two look blank and are not
)  # fmt: skip
QUOTES = (
    '"', "'", "`", '"hello"', "it's", "\\", '\\"', "\\n", "\\u0041", "\\ud83d", "\\ude00", "```python\n", "{{ x }}", "&amp;", "<b>",
    "<", ">",
)  # fmt: skip
JSON_LOOK_ALIKES = (
    "None", "True", "False", "null", "true", "false", "007", "0", "42", "-1.5", "1.0", "1e3", "NaN", "Infinity", "undefined",
    "9007199254740993", "1e400", "{}", "[]", "[1, 2]", "[1,2]", '{"a": 1}', '{"a":', '"quoted"',
)  # fmt: skip
CONTROLS = ("\x00", "\x07", "\x1b", "\x7f", "\x9f")
ASTRAL = ("😀", "👩‍👩‍👧", "🇰🇷", "𝔘", "𐍈", "\U0010ffff")

_PLAIN = st.sampled_from((*WORDS, *WORDS, *BLANKS, *QUOTES, *JSON_LOOK_ALIKES, *CONTROLS, *ASTRAL))
_ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@cache
def any_atom(pieces: Pieces) -> SearchStrategy[str]:
    """A short stretch of text of any sort."""
    return _PLAIN | _PLAIN | _PLAIN | _PLAIN | _ANY_TEXT | st.sampled_from(pieces) if pieces else _PLAIN | _PLAIN | _PLAIN | _ANY_TEXT


@cache
def texts(pieces: Pieces = (), *, min_size: int = 0, max_size: int = 5) -> SearchStrategy[str]:
    """A text that likes trouble; the sizes count the atoms that it is made of."""
    return st.lists(any_atom(pieces), min_size=min_size, max_size=max_size).map("".join)


@cache
def pieces_of(name: str, *, whole: bool = False) -> Pieces:
    """Pieces of a format's markers: proper beginnings and ends and, for forged text, the whole ones."""
    literals = sorted(set(markers(name).values()))
    places = [(literal, size) for literal in literals for size in (1, 2, len(literal) // 2, len(literal) - 1)]
    cut = {literal[:size] for literal, size in places} | {literal[size:] for literal, size in places}
    return tuple(piece for piece in (*(literals if whole else ()), *sorted(cut - set(literals) - {""})) if _can_be_said(name, piece))


def _can_be_said(name: str, piece: str) -> bool:
    """Whether a turn may hold a text at all: some templates refuse some."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": piece}}}
    said: dict[str, Any] = {"role": "assistant", "content": piece, "reasoning_content": piece}
    called: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [call]}
    try:
        get_format(name).render([{"role": "user", "content": piece}, said, called])
    except RenderError:
        return False
    return True


# ------------------------------------------------------------------------------------------------------------------ JSON

NUMBERS = (
    0, 1, -1, 42, 2**31, 2**53 + 1, 2**64, -(10**25), 0.0, -0.0, 1.0, -2.5, 36.0, 0.1 + 0.2, 1e-7, 1e15, 1e16, 1e22, 5e-324,
    1.7976931348623157e308,
)  # fmt: skip
KEYS = (
    "query", "path", "n", "items", "keys", "get", "name", "type", "id", "a", "b", "Z", "with space", "dot.ted", "da-sh", "ключ", "0",
    "<tag>",
)  # fmt: skip
ODD_KEYS = ("", 'quo"te', "a>b", "new\nline", " edge ", "back\\slash", "a=b", "a>")
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
NAMES = ("search", "get_weather", "read_file", "f", "g", "lookup.v2", "mcp__git-status", "查询", "functions.f")


@cache
def scalars(pieces: Pieces = ()) -> SearchStrategy[Json]:
    """A JSON value that holds no other."""
    return texts(pieces, max_size=3) | st.sampled_from(NUMBERS) | st.integers() | FLOATS | st.booleans() | st.none()


@cache
def json_values(pieces: Pieces = (), *, max_leaves: int = 4) -> SearchStrategy[Json]:
    """Any JSON value."""
    return st.recursive(
        scalars(pieces),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
        max_leaves=max_leaves,
    )


# ----------------------------------------------------------------------------------------------------- schemas and tools

SCALAR_TYPES = ("string", "integer", "number", "boolean", "null")
PYTHON_TYPES = {  # written in many data sets in place of the JSON names
    "str": "string", "int": "integer", "float": "number", "bool": "boolean", "dict": "object", "list": "array",
}  # fmt: skip
DEFINITIONS: dict[str, dict[str, Json]] = {  # what `$ref` may name; the last one names itself
    "city": {"type": "string"},
    "count": {"type": "integer"},
    "node": {"type": "object", "properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}}},
}


@cache
@st.composite
def schemas(draw: DrawFn, depth: int = 2) -> Json:
    """A JSON Schema of one argument; `depth` says how far schemas hold others."""
    return draw(_schemas(depth))  # a composite of its own, so that what Hypothesis prints of it is short


@cache
def _schemas(depth: int) -> SearchStrategy[Json]:
    plain = st.sampled_from((*SCALAR_TYPES, "string", "integer", "number", *PYTHON_TYPES)).map(lambda kind: {"type": kind})
    words = st.sampled_from(("red", "dark blue", "", "null", "None", "1", 'q"q'))
    special = st.one_of(
        st.just({}),
        st.sampled_from(sorted(DEFINITIONS)).map(lambda key: {"$ref": f"#/$defs/{key}"}),
        st.lists(st.sampled_from(SCALAR_TYPES), min_size=1, max_size=3, unique=True).map(lambda kinds: {"type": kinds}),
        st.sampled_from(SCALAR_TYPES).map(lambda kind: {"type": kind, "nullable": True}),
        st.lists(words, min_size=1, max_size=3).map(lambda values: {"type": "string", "enum": values}),
        st.lists(scalars(), min_size=1, max_size=3).map(lambda values: {"enum": values}),
        scalars().map(lambda value: {"const": value}),
    )
    if depth == 0:
        return plain | plain | special
    inner = schemas(depth - 1)
    nested = st.one_of(
        inner.map(lambda items: {"type": "array", "items": items}),
        st.dictionaries(st.sampled_from(KEYS), inner, max_size=2).map(lambda properties: {"type": "object", "properties": properties}),
        st.lists(inner, min_size=1, max_size=2).map(lambda variants: {"anyOf": variants}),
        st.lists(inner, min_size=1, max_size=2).map(lambda variants: {"oneOf": variants}),
        inner.map(lambda schema: {"anyOf": [schema, {"type": "null"}]}),
        inner.map(lambda schema: {"allOf": [schema]}),
    )
    return plain | plain | special | nested


_BY_TYPE: dict[str, SearchStrategy[Json]] = {
    "integer": st.integers() | st.sampled_from([number for number in NUMBERS if isinstance(number, int)]),
    "number": st.sampled_from(NUMBERS) | FLOATS | st.integers(),
    "boolean": st.booleans(),
    "null": st.none(),
    "array": st.lists(json_values(max_leaves=2), max_size=2),
    "object": st.dictionaries(st.sampled_from(KEYS), json_values(max_leaves=2), max_size=2),
}


@st.composite
def fitting(draw: DrawFn, schema: Mapping[str, Json], pieces: Pieces = (), depth: int = 4) -> Json:
    """A value that fits a schema made here; `depth` says how far a value holds others."""
    return draw(_fitting(schema, pieces, depth))


def _fitting(schema: Mapping[str, Json], pieces: Pieces, depth: int) -> SearchStrategy[Json]:
    if "$ref" in schema:
        return _fitting(DEFINITIONS[schema["$ref"].rpartition("/")[2]], pieces, depth - 1)
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return st.one_of([_fitting(variant, pieces, depth - 1) for variant in schema[key]])
    kinds: Any = schema.get("type")
    if kinds is None:
        return json_values(pieces)
    if isinstance(kinds, list):
        return st.one_of([_fitting({**schema, "type": kind}, pieces, depth) for kind in kinds])
    kind: str = PYTHON_TYPES.get(kinds, kinds)
    found: SearchStrategy[Json]
    if kind == "string":
        found = texts(pieces)
    elif kind == "object" and "properties" in schema:
        properties = schema["properties"] if depth > 0 else {}  # a schema may hold itself
        found = st.fixed_dictionaries({}, optional={key: _fitting(inner, pieces, depth - 1) for key, inner in properties.items()})
    elif kind == "array" and "items" in schema:
        found = st.lists(_fitting(schema["items"], pieces, depth - 1), max_size=2)
    else:
        found = _BY_TYPE[kind]
    return st.none() | found if schema.get("nullable") else found


_SOME_NAMES = st.lists(st.sampled_from(NAMES), max_size=3, unique=True)
_SOME_KEYS = st.lists(st.sampled_from(KEYS), max_size=3, unique=True)
_CHANGES = st.sampled_from(("", "", "", "", "strict", "reversed", "description", "parameters"))


@st.composite
def tools(draw: DrawFn, pieces: Pieces = (), *, min_size: int = 0) -> Tools:
    """Tools in the wrapped OpenAI shape, each name once."""
    names = draw(_SOME_NAMES)
    return [_tool(draw, name, pieces) for name in (names if len(names) >= min_size else NAMES[:min_size])]


def _tool(draw: DrawFn, name: str, pieces: Pieces) -> dict[str, Any]:
    properties = {key: draw(schemas()) for key in draw(_SOME_KEYS)}
    parameters: dict[str, Any] = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    if "$ref" in json.dumps(properties):
        parameters["$defs"] = DEFINITIONS
    function: dict[str, Any] = {"name": name, "description": draw(texts(pieces, max_size=2)), "parameters": parameters}
    change = draw(_CHANGES)
    if change == "strict":
        function[change] = True
    elif change == "reversed":
        function = dict(reversed(function.items()))
    elif change:
        del function[change]
    return {"type": "function", "function": function}
