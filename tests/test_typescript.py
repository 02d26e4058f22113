"""Tools as TypeScript: written as the chat template writes them, and read back so that they are written the same again.

The template's own macros are the reference.  They are in `shared/oracle` beside the project root; where that is absent the
tests that need it are skipped, unless `CHATCODEC_REQUIRE_ORACLE` is set.
"""

import contextlib
import copy
import importlib.util
import json
import os
import pickle
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from benchmarks.hostile import DECLARATIONS
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

import strategies as make
from chatcodec.typescript import DeclarationError, declare, declared, read_declarations
from conformance import VECTORS
from limits import at_most

ORACLE = Path(__file__).resolve().parents[2] / "shared" / "oracle" / "oracle.py"
Function = dict[str, Any]


def _function(**properties: Any) -> Function:
    return {"name": "f", "parameters": {"type": "object", "properties": properties}}


def _read(text: str) -> Function:
    """The one function that a text declares."""
    (tool,) = read_declarations(text)
    assert tool["type"] == "function"
    assert declare(tool["function"]) == text
    function: Function = tool["function"]
    return function


def _back(function: Function) -> Function:
    return _read(declare(function))


# ------------------------------------------------------------------------------------------------------------ strategies

TEXTS = (
    "a city", "Use // here", 'say "hi"', "{x: 1}", "the [list]", "one, two", "x | y", "it ends with a comma,", "null or not", "",
    "first\nsecond", "many\n\nlines, yes", "list:\n- a: foo\n- b: bar", "the default: 3", "e.g. (_: x) => any", 'like {"a": 1}',
    "naïve 여름", "a\n  b: c", "Note: text",
)  # fmt: skip
NAMES = (*make.KEYS, 'quo"te', "it's", "a/b", "$ref", "@x", "a b: c", "{k}", "[0]", "properties", "default", "oneOf", "a,b", "")
MEMBERS = ("a", "b c", 'q"q', "null", "1", "x | y", "a, b", "//", "", "back\\slash", "new\nline", "여름")
DEFAULTS: tuple[Any, ...] = (
    1,
    0,
    -2.5,
    1e16,
    True,
    False,
    None,
    "x",
    "null",
    'say "hi"',
    "a\nb",
    [],
    [[]],
    [1, 2],
    {},
    {"a": [1, "b"]},
    10**20,
)

texts = st.sampled_from(TEXTS)
_types = st.sampled_from(("string", "integer", "number", "boolean", "string", "any"))
_plain = st.one_of(
    _types.map(lambda kind: {"type": kind}),
    _types.map(lambda kind: {"type": kind}),
    st.lists(st.sampled_from(make.SCALAR_TYPES + ("object", "array")), min_size=1, max_size=3, unique=True).map(
        lambda kinds: {"type": kinds}
    ),
    st.lists(st.sampled_from(MEMBERS), min_size=1, max_size=3, unique=True).map(lambda members: {"type": "string", "enum": members}),
    st.sampled_from(({}, {"type": "integer", "enum": [1, 2]}, {"anyOf": [{"type": "string"}]}, {"type": "array"})),
)


@st.composite
def _shown(draw: DrawFn, schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with some of what a declaration shows besides the type."""
    schema = copy.deepcopy(schema)
    extra = draw(st.sets(st.sampled_from(("description", "default", "nullable", "title", "examples")), max_size=2))
    if "description" in extra:
        schema["description"] = draw(texts)
    if "default" in extra:
        members = schema.get("enum")
        schema["default"] = draw(st.sampled_from(members) if members else st.sampled_from(DEFAULTS))
    if "nullable" in extra:
        schema["nullable"] = True
    if "title" in extra:
        schema["title"] = draw(st.sampled_from(("Title", "A title: b")))
    if "examples" in extra:
        schema["examples"] = draw(st.lists(st.sampled_from(("one", 'two "2"', 3, "a: b", None)), min_size=1, max_size=3))
    return schema


@cache
def schemas(depth: int = 3) -> SearchStrategy[dict[str, Any]]:
    if depth == 0:
        return _plain.flatmap(_shown)
    inner = schemas(depth - 1)
    nested = st.one_of(
        inner.map(lambda items: {"type": "array", "items": items}),
        objects(depth - 1),
        st.lists(inner, min_size=1, max_size=3).map(lambda variants: {"oneOf": variants}),
    )
    return (_plain | nested).flatmap(_shown)


@st.composite
def objects(draw: DrawFn, depth: int = 3) -> dict[str, Any]:
    properties = draw(st.dictionaries(st.sampled_from(NAMES), schemas(depth), max_size=4))
    required = draw(st.lists(st.sampled_from(sorted(properties)), unique=True)) if properties else []
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


@st.composite
def functions(draw: DrawFn) -> Function:
    function: Function = {"name": draw(st.sampled_from(make.NAMES)), "parameters": draw(objects())}
    if draw(st.booleans()):
        function["description"] = draw(texts)
    return function


def any_functions() -> SearchStrategy[Function]:
    """Functions of all kinds: with what a declaration shows, and those that all formats are tested with."""
    shared = make.tools(min_size=1).map(lambda tools: dict(tools[0]["function"]))
    return functions() | functions() | shared


# ------------------------------------------------------------------------------------------------------- the reference


@cache
def _oracle() -> Any:
    if "oracle" not in sys.modules:
        spec = importlib.util.spec_from_file_location("oracle", ORACLE)
        assert spec is not None and spec.loader is not None
        sys.modules["oracle"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["oracle"])
    return sys.modules["oracle"]


@pytest.fixture(scope="module")
def template() -> Callable[[Any], str]:
    """What the template makes of a function."""
    if not ORACLE.is_file():
        reason = "the reference templates are not at hand: there is no shared/oracle beside the project root"
        if os.environ.get("CHATCODEC_REQUIRE_ORACLE"):
            pytest.fail(reason)
        pytest.skip(reason)
    oracle = _oracle()
    opening, closing = "<|start|>developer<|message|># Tools\n\n", "<|end|><|start|>user<|message|>?<|end|>"

    def declared(function: Any) -> str:
        tool = {"type": "function", "function": function}
        text: str = oracle.render("harmony_xml", [{"role": "user", "content": "?"}], [tool]).text
        start = text.index(opening) + len(opening)
        assert text.endswith(closing)
        return text[start : -len(closing)]

    return declared


@given(function=any_functions())
def test_declared_as_the_template_does(template: Callable[[Any], str], function: Function) -> None:
    assert declare(function) == template(function)


@given(data=st.data())
def test_junk_is_declared_as_the_template_does_or_refused(template: Callable[[Any], str], data: st.DataObject) -> None:
    function = data.draw(make.damaged(data.draw(functions())))
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or function["name"] == "bash":
        return
    try:
        text = declare(function)
    except ValueError:
        return
    assert text == template(function)


ODDITIES: dict[str, dict[str, Any]] = {
    "a oneOf of keys": {"oneOf": {"a": 1, "b": 2}},
    "an empty oneOf": {"oneOf": []},
    "items with an empty oneOf": {"type": "array", "items": {"oneOf": []}},
    "a oneOf that is no list hides the description": {"oneOf": "x", "description": "hidden", "type": "string"},
    "an enum of keys": {"type": "string", "enum": {"a": 1}},
    "an enum without strings": {"type": "string", "enum": [1, None]},
    "a default beside such an enum": {"type": "string", "enum": [1], "default": "x"},
    "a default of another enum": {"type": ["string", "null"], "enum": ["a", None], "default": "a"},
    "a type of keys": {"type": {"string": 1, "integer": 2}},
    "a type without names": {"type": [1]},
    "no type": {"type": None},
    "null alone": {"type": "null"},
    "null in a list": {"type": ["null"]},
    "items that are true": {"type": "array", "items": True},
    "an array of a union": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
    "nullable beside null": {"type": "object", "properties": {"p": {"type": "string", "default": None}}, "nullable": True},
    "nullable": {"type": "object", "properties": {}, "nullable": True},
    "required as text": {"type": "object", "properties": {"a": {}, "z": {}}, "required": "abc"},
    "examples without strings": {"type": "integer", "examples": [1]},
    "a title over lines": {"type": "string", "title": "a\nb", "description": "c\n\nd"},
    "the description of the first variant": {"description": "x", "oneOf": [{"type": "string", "description": "x"}, {"description": "y"}]},
    "a description of its own": {"description": "x", "oneOf": [{"type": "string", "description": "z"}, {"description": "x", "default": 1}]},
    "an object under its property's description": {"description": "x", "oneOf": [{"type": "object", "description": "x", "default": {}}]},
    "defaults of variants": {"oneOf": [{"type": "string", "enum": ["a"], "default": "a"}, {"oneOf": [{"enum": ["a"], "default": "a"}]}]},
    "arrays of variants": {"type": "array", "items": {"oneOf": [{"type": "string"}, {"type": "array", "default": []}]}, "default": []},
}


@pytest.mark.parametrize("kind", ODDITIES)
@pytest.mark.parametrize("place", ["property", "parameters"])
def test_oddities(template: Callable[[Any], str], kind: str, place: str) -> None:
    function = _function(p=ODDITIES[kind]) if place == "property" else {"name": "f", "parameters": ODDITIES[kind]}
    text = declare(function)
    assert text == template(function)
    if kind != "a default of another enum" or place == "property":
        assert declare(_back(function)) == text


@pytest.mark.skipif(not (VECTORS / "harmony_xml.jsonl").is_file(), reason="the vectors of harmony_xml are not here")
def test_the_vectors() -> None:
    """Every section of tools in a vector reads, and declares the same again."""
    sections = 0
    for line in (VECTORS / "harmony_xml.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        functions = [tool.get("function", tool) for tool in case["tools"] or () if isinstance(tool, dict)]
        for function in functions:
            if isinstance(function, dict) and isinstance(function.get("name"), str):
                try:
                    text = declare(function)
                except ValueError:
                    assert "error" in case["expect"]
                    continue
                assert "error" in case["expect"] or text in case["expect"]["text"] or function["name"] == "bash"
                assert declare(_read(text)) == text
                sections += 1
    assert sections > 200


# ------------------------------------------------------------------------------------------------------------- the laws


@given(declared=st.lists(any_functions(), max_size=3))
def test_what_is_read_declares_the_same(declared: list[Function]) -> None:
    text = "\n\n".join(map(declare, declared))
    tools = read_declarations(text)
    assert "\n\n".join(declare(tool["function"]) for tool in tools) == text
    assert [tool["function"]["name"] for tool in tools] == [function["name"] for function in declared]


@given(function=functions())
def test_what_is_shown_comes_back(function: Function) -> None:
    back = _back(function)
    assert back.get("description", "") == function.get("description", "")
    _compare(function["parameters"], back["parameters"])


SHOWN = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean"}


def _compare(schema: dict[str, Any], back: dict[str, Any]) -> None:
    """Whether all that an object's declaration shows stands in what was read of it."""
    assert back["type"] == "object"
    assert list(back["properties"]) == list(schema["properties"])
    assert set(back.get("required", ())) == set(schema.get("required", ()))
    for name, wanted in schema["properties"].items():
        spec = back["properties"][name]
        assert spec.get("title") == wanted.get("title")
        assert "default" in wanted or "default" not in spec
        if "oneOf" in wanted:
            assert len(spec["oneOf"]) == len(wanted["oneOf"])
            continue
        assert spec.get("description") == wanted.get("description")
        assert "default" not in wanted or repr(spec["default"]) == repr(wanted["default"])
        if wanted.get("enum") and wanted.get("type") == "string":
            assert spec["enum"] == wanted["enum"]
        elif wanted.get("type") == "object":
            _compare(wanted, spec)
        elif wanted.get("type") == "array":
            assert spec["type"] == "array"
            assert bool(spec.get("items")) == bool(wanted.get("items"))
        elif str(wanted.get("type")) in SHOWN and not wanted.get("nullable"):
            assert spec["type"] == SHOWN[wanted["type"]]
        if strings := [example for example in wanted.get("examples", ()) if isinstance(example, str)]:
            assert spec["examples"] == strings


@given(function=functions())
def test_what_was_read_drops_nothing(function: Function) -> None:
    assert declared(_back(function)).dropped == ()


PIECES = (
    "type ", "f", " = (_: ", "{\n", "}", ") => any;", "// ", "//\n", "p", "?", ": ", ":\n", "string", '"a"', " | ", "null", "[]", ",", "\n",
    "    ", " ", "## x", "\n\n", " // default: ", "// Examples:\n", '// - "', '"', "Array<any>", "any", "여름", "\\", "default: [1]",
)  # fmt: skip


def _assert_reads_or_is_refused(text: str) -> None:
    try:
        tools = read_declarations(text)
    except DeclarationError as error:
        assert 0 <= error.position <= len(text)
    else:
        assert "\n\n".join(declare(tool["function"]) for tool in tools) == text


@given(text=st.lists(st.sampled_from(PIECES), max_size=30).map("".join) | make.texts(PIECES))
def test_junk_reads_or_is_refused(text: str) -> None:
    _assert_reads_or_is_refused(text)


@given(data=st.data())
def test_damaged_declarations_read_or_are_refused(data: st.DataObject) -> None:
    text = declare(data.draw(functions()))
    start, end = sorted((data.draw(st.integers(0, len(text))), data.draw(st.integers(0, len(text)))))
    text = text[:start] + data.draw(st.sampled_from(("", text[start:end] * 2, *PIECES))) + text[end:]
    _assert_reads_or_is_refused(text)


# ------------------------------------------------------------------------------------------------------------ examples


def test_a_described_line_that_no_schema_makes_is_no_property() -> None:
    described = {"type": "boolean", "description": 'One of\nmode: fast | "slow",\nas you like.'}
    function = {"name": "f", "parameters": {"type": "object", "properties": {"quick": described}}}
    assert _back(function) == function


def test_an_example_of_everything() -> None:
    text = """// Books a table.
// Twice, if need be.
type book.table = (_: {
// Where
//
// The name of the place.
// Examples:
// - "Chez Nous"
place: string,
seats?: number, // default: 2
area?: "inside" | "outside" | null, // default: inside
guests: {
    name: string,
    // Years.
    // Or "unknown".
    age?: number | null,
    }[],
// How to pay.
// default: "cash"
pay?:
 | "cash" | "card"
 | {
   token: string,
   }
 | string // A voucher.
,
ids?:\x20
     | number
     | string // By name.[],
}) => any;

## note

Write anything.

Really.

type ping = (_: any) => any;"""
    book, note, ping = (tool["function"] for tool in read_declarations(text))
    assert book == {
        "name": "book.table",
        "description": "Books a table.\nTwice, if need be.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "title": "Where", "description": "The name of the place.", "examples": ["Chez Nous"]},
                "seats": {"type": "number", "default": 2},
                "area": {"type": "string", "enum": ["inside", "outside"], "nullable": True, "default": "inside"},
                "guests": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string"},
                            "age": {"type": ["number", "null"], "description": 'Years.\n    // Or "unknown".'},
                        },
                        "required": ["name"],
                    },
                },
                "pay": {
                    "oneOf": [
                        {"type": "string", "enum": ["cash", "card"]},
                        {"type": "object", "properties": {"token": {"type": "string"}}, "required": ["token"]},
                        {"type": "string", "description": "A voucher."},
                    ],
                    "description": "How to pay.",
                    "default": "cash",
                },
                "ids": {"type": "array", "items": {"oneOf": [{"type": "number"}, {"type": "string", "description": "By name."}]}},
            },
            "required": ["place", "guests"],
        },
    }
    assert note == {"name": "note", "description": "Write anything.\n\nReally.", "parameters": {"type": "string"}}
    assert ping == {"name": "ping"}


REFUSED = {
    "no declaration": ("hello", 0),
    "a newline at the end": ("type f = (_: any) => any;\n", 25),
    "a gap at the end": ("type f = (_: any) => any;\n\n", 25),
    "an object that does not end": ("type f = (_: {\np: string,\n", 26),
    "a word that is no type": ("type f = (_: {\np: chair,\n}) => any;", 15),
    "words among literals": ('type f = (_: {\np: "a" | string,\n}) => any;', 24),
    "a name twice": ("type f = (_: {\np: any,\np: any,\n}) => any;", 23),
    "items that are null": ('type f = (_: {\np: "a" | null[],\n}) => any;', 21),
    "an escape that is not needed": ('type f = (_: {\np: "\\u0041",\n}) => any;', 19),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_what_is_no_declaration_is_refused_with_its_place(fault: str) -> None:
    text, position = REFUSED[fault]
    with pytest.raises(DeclarationError) as refused:
        read_declarations(text)
    assert refused.value.position == position
    assert str(refused.value).endswith(f"at position {position}")
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


UNDECLARABLE: dict[str, Any] = {
    "no name": {"parameters": {}},
    "a name that is no string": {"name": 1},
    "a description that is no string": {"name": "f", "description": ["x"]},
    "properties that are a list": {"name": "f", "parameters": {"type": "object", "properties": ["a"]}},
    "a property's name that is no string": {"name": "f", "parameters": {"type": "object", "properties": {1: {}}}},
    "required that holds nothing": {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}, "required": 1}},
    "a default that is no JSON": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"default": {1, 2}}}}},
}


@pytest.mark.parametrize("fault", UNDECLARABLE)
def test_what_the_template_fails_at_is_refused(fault: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        declare(UNDECLARABLE[fault])


def test_dropped_names_what_is_not_shown() -> None:
    function = _function(
        limit={"type": "integer", "minimum": 1, "title": "Limit"},
        properties={"type": "object", "properties": {"x": {"type": "string", "pattern": "a"}}, "additionalProperties": False},
        either={"oneOf": [{"type": "string", "maxLength": 3}, {"type": "number", "description": "A number."}]},
        maybe={"type": "string", "nullable": True},
        deep={"type": "array", "items": {"type": "string", "description": "of an item", "format": "date"}},
        any={"anyOf": [{"type": "string"}]},
        empty={"type": "object", "properties": {}, "required": [], "description": ""},
        free=True,
    )
    function["strict"] = True
    function["parameters"] |= {"required": ["either", "limit"], "$defs": {}}
    assert list(declared(function).dropped) == [
        "parameters.properties.limit.type",
        "parameters.properties.limit.minimum",
        "parameters.properties.properties.properties.x.pattern",
        "parameters.properties.properties.additionalProperties",
        "parameters.properties.either.oneOf[0].maxLength",
        "parameters.properties.deep.items.description",
        "parameters.properties.deep.items.format",
        "parameters.properties.any.anyOf",
        "parameters.$defs",
        "strict",
    ]
    assert declared({"name": "f", "description": "", "parameters": {}}).dropped == ()
    assert declared({"name": "f", "parameters": {"type": "object", "properties": {}, "required": []}}).dropped == ()


# ----------------------------------------------------------------------------------------------------------------- size


def _nested(depth: int, *, key: str) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema} if key == "items" else {"type": "object", "properties": {"p": schema}}
        schema = {"oneOf": [schema]} if key == "oneOf" else schema
    return schema


@pytest.mark.parametrize("key", ["items", "properties", "oneOf"])
def test_deep_schemas(key: str) -> None:
    function = _function(p=_nested(60, key=key))
    assert _back(function) == {**function, "parameters": {"type": "object", "properties": {"p": _nested(60, key=key)}}}
    with pytest.raises(ValueError, match="too deep"):
        declare(_function(p=_nested(100_000, key=key)))


def test_ten_thousand_properties() -> None:
    spec = {"type": "string", "description": "Text.", "default": "x"}
    function = _function(**{f"property{number}": spec for number in range(10_000)})
    assert _back(function) == function


def test_many_required_properties_are_declared_in_linear_time() -> None:
    names = [f"p{number}" for number in range(100_000)]
    parameters = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}
    with at_most(20):
        declared = declare({"name": "f", "parameters": parameters})
    assert declared.count("?:") == 0 and declared.count(": string,") == len(names)


@pytest.mark.parametrize("kind", DECLARATIONS)
def test_reading_takes_linear_time(kind: str) -> None:
    with at_most(20), contextlib.suppress(DeclarationError):
        read_declarations(DECLARATIONS[kind](200_000))
