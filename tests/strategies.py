"""Hypothesis strategies for every format at once: texts, JSON, schemas, tools, conversations, completions and cuts.

Rules of this module:

* a format is known only by what it says of itself: its options (`fmt.options`) and its markers (`chatcodec.grammar.markers`);
* a conversation that is drawn here can be rendered by every format: text only, one system message at most and that first,
  every call with an id of its own, results in the order of the calls;
* a text likes trouble.  `pieces` are what it may be made of besides: beginnings and ends of a format's markers (`pieces_of`),
  and whole markers only for those who ask for forged text;
* no lone surrogates: they are no text.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from functools import cache
from typing import Any, NamedTuple

from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

import chatcodec
from chatcodec.grammar import markers

Json = Any
Message = dict[str, Any]
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
def _atoms(pieces: Pieces) -> SearchStrategy[str]:
    return _PLAIN | _PLAIN | _PLAIN | _PLAIN | _ANY_TEXT | st.sampled_from(pieces) if pieces else _PLAIN | _PLAIN | _PLAIN | _ANY_TEXT


@cache
def texts(pieces: Pieces = (), *, min_size: int = 0, max_size: int = 5) -> SearchStrategy[str]:
    """A text that likes trouble; the sizes count the atoms that it is made of."""
    return st.lists(_atoms(pieces), min_size=min_size, max_size=max_size).map("".join)


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
        chatcodec.get_format(name).render([{"role": "user", "content": piece}, said, called])
    except chatcodec.RenderError:
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
def schemas(depth: int = 2) -> SearchStrategy[Json]:
    """A JSON Schema of one argument."""
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


def fitting(schema: Mapping[str, Json], pieces: Pieces = (), depth: int = 4) -> SearchStrategy[Json]:
    """A value that fits a schema made here."""
    if "$ref" in schema:
        return fitting(DEFINITIONS[schema["$ref"].rpartition("/")[2]], pieces, depth - 1)
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return st.one_of([fitting(variant, pieces, depth - 1) for variant in schema[key]])
    kinds: Any = schema.get("type")
    if kinds is None:
        return json_values(pieces)
    if isinstance(kinds, list):
        return st.one_of([fitting({**schema, "type": kind}, pieces, depth) for kind in kinds])
    kind: str = PYTHON_TYPES.get(kinds, kinds)
    found: SearchStrategy[Json]
    if kind == "string":
        found = texts(pieces)
    elif kind == "object" and "properties" in schema:
        properties = schema["properties"] if depth > 0 else {}  # a schema may hold itself
        found = st.fixed_dictionaries({}, optional={key: fitting(inner, pieces, depth - 1) for key, inner in properties.items()})
    elif kind == "array" and "items" in schema:
        found = st.lists(fitting(schema["items"], pieces, depth - 1), max_size=2)
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


# -------------------------------------------------------------------------------------------------- messages, conversations


@st.composite
def arguments(draw: DrawFn, tool: Mapping[str, Any] | None, pieces: Pieces = (), *, fit: bool = False) -> dict[str, Json]:
    """Arguments for a tool; unless they must `fit`, some are of the wrong type or of no schema at all."""
    properties = (tool or {}).get("function", {}).get("parameters", {}).get("properties", {})
    left_out = draw(st.sampled_from([None, None, None, *properties]))
    made = {key: draw(fitting(schema, pieces)) for key, schema in properties.items() if key != left_out}
    if not fit and draw(st.integers(0, 2)) == 0:
        keys = st.sampled_from((*KEYS, *properties) * 3 + ODD_KEYS)
        made |= draw(st.dictionaries(keys, json_values(pieces), max_size=2))
    return made


@st.composite
def calls(draw: DrawFn, number: int, tools: Tools, pieces: Pieces = (), *, fit: bool = False) -> dict[str, Any]:
    """A tool call with an id that no other call of that number has; mostly of a known tool."""
    tool = draw(st.sampled_from(tools if fit else [*tools, *tools, None])) if tools else None
    name = tool["function"]["name"] if tool else draw(st.sampled_from(NAMES))
    given: Any = draw(arguments(tool, pieces, fit=fit))
    shape = draw(st.sampled_from(("object", "object", "object", "text", "absent")))
    function = {"name": name, "arguments": json.dumps(given, ensure_ascii=False) if shape == "text" else given}
    if shape == "absent" and not given:
        del function["arguments"]
    return {"id": f"call_{number}", "type": "function", "function": function}


@cache
def contents(pieces: Pieces = ()) -> SearchStrategy[str | list[dict[str, str]]]:
    """Content of a message: mostly a string, sometimes a list of text parts."""
    part = texts(pieces, max_size=3).map(lambda text: {"type": "text", "text": text})
    whole = texts(pieces)
    return whole | whole | whole | st.lists(part, min_size=1, max_size=3)


@st.composite
def assistants(draw: DrawFn, number: int, tools: Tools, pieces: Pieces = (), *, fit: bool = False, max_calls: int = 3) -> Message:
    """An assistant turn; its calls are numbered from `number`."""
    message: Message = {"role": "assistant", "content": draw(st.none() | contents(pieces) | contents(pieces))}
    key = draw(st.sampled_from(("reasoning_content", "reasoning_content", "reasoning_content", "reasoning", "thinking", None)))
    if key:
        message[key] = draw(texts(pieces))
    count = draw(st.integers(0, max_calls)) if tools or not fit else 0
    if count:
        message["tool_calls"] = [draw(calls(number + offset, tools, pieces, fit=fit)) for offset in range(count)]
    return message


@st.composite
def conversations(
    draw: DrawFn, tools: Tools, pieces: Pieces = (), *, fit: bool = False, max_turns: int = 2, end: str | None = None
) -> list[Message]:
    """A whole conversation that every format can render; `end="assistant"` makes a turn of the model the last one."""
    messages: list[Message] = []
    if draw(st.booleans()):
        messages.append({"role": "system", "content": draw(contents(pieces))})
    number = 0
    for _ in range(draw(st.integers(1, max_turns))):
        messages.append({"role": "user", "content": draw(contents(pieces))})
        for _ in range(draw(st.integers(0, 2))):
            turn = draw(assistants(number, tools, pieces, fit=fit))
            messages.append(turn)
            number += 3
            for call in turn.get("tool_calls", ()):
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": draw(contents(pieces))})
            if "tool_calls" not in turn:
                break
    if end == "assistant" and messages[-1]["role"] == "assistant":
        messages.append({"role": "user", "content": draw(texts(pieces))})
    if end == "assistant" or (messages[-1]["role"] != "assistant" and draw(st.booleans())):
        messages.append(draw(assistants(number, tools, pieces, fit=fit)))
    return messages


# ---------------------------------------------------------------------------------------------------------------- options

_RESPONSE_FORMATS = st.one_of(
    st.just({"type": "json_object"}),
    schemas().map(lambda schema: {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}),
    st.just({"type": "text"}),
)
_BY_PYTHON_TYPE: dict[type, SearchStrategy[Any]] = {
    bool: st.booleans(),
    str: texts(max_size=2),
    int: st.integers(0, 600),
    float: st.floats(0, 0.99),
    type(None): st.none(),
    datetime: st.datetimes(),
    date: st.dates(),
    dict: _RESPONSE_FORMATS,  # what the chat APIs call `response_format` is the one object among the options
    list: st.lists(st.sampled_from(NAMES), max_size=2),
}


#: Options that are there to make a template refuse what it would render otherwise.
REFUSING = ("allow_missing_thinking",)


def option_values(option: chatcodec.Option) -> SearchStrategy[Any]:
    """A value that an option of a format declares as its own."""
    if option.values:
        return st.sampled_from(list(option.values))
    return st.one_of([_BY_PYTHON_TYPE[kind] for kind in option.types])


def options(fmt: chatcodec.Format, *, without: Sequence[str] = ("add_generation_prompt",)) -> SearchStrategy[dict[str, Any]]:
    """Some options of a format with values of theirs."""
    left_out = {*without, *REFUSING}
    return st.fixed_dictionaries({}, optional={name: option_values(option) for name, option in fmt.options.items() if name not in left_out})


#: Codes of refusals of a text that a template does not write inside a message.
REFUSED_TEXTS = frozenset(("wire_tag_in_content", "reserved_delimiter"))


def rendered(fmt: chatcodec.Format, messages: list[Message], **given: Any) -> chatcodec.Rendered:
    """What the renderer writes; pieces that happen to make a text that the template refuses are drawn anew."""
    try:
        return fmt.render(messages, **given)
    except chatcodec.RenderError as error:
        if error.code not in REFUSED_TEXTS:
            raise
        reject()


# ------------------------------------------------------------------------------------------------------------ completions


class Completion(NamedTuple):
    """A completion with all that belongs to it.  `messages` ends with the turn that it was made of, if it was made of one."""

    text: str
    prompt: str
    tools: Tools | None
    messages: list[Message]
    options: dict[str, Any]
    losses: list[chatcodec.Loss]


@st.composite
def canonical(draw: DrawFn, fmt: chatcodec.Format, *, whole: bool = False, fit: bool = False, max_turns: int = 1) -> Completion:
    """What the format's own renderer writes for an assistant turn: from the generation prompt up to and with the stop token."""
    pieces = pieces_of(fmt.name, whole=whole)
    declared = draw(tools(pieces, min_size=1 if fit else 0))
    messages = draw(conversations(declared, pieces, fit=fit, max_turns=max_turns, end="assistant"))
    chosen = draw(options(fmt))
    bare = {key: value for key, value in messages[-1].items() if key not in ("reasoning_content", "reasoning", "thinking")}
    # Not every turn can come of every prompt: where thinking is off there is no reasoning.  The format's defaults always do.
    for turn, given in ((messages[-1], chosen), (bare, chosen), (messages[-1], {}), (messages[-1] | {"content": "river"}, {})):
        written = rendered(fmt, [*messages[:-1], turn], tools=declared or None, **given)
        if span := written.sampled_spans[-1]:
            prompt, text = written.text[: span[0]], written.text[span[0] : span[1]]
            return Completion(text, prompt, declared or None, [*messages[:-1], turn], given, written.losses)
    raise AssertionError(f"{fmt.name}: with its default options a turn has no sampled span: {messages}")


@st.composite
def junk(draw: DrawFn, fmt: chatcodec.Format) -> Completion:
    """Random characters mixed with markers of the format, after any generation prompt."""
    literals = sorted(set(markers(fmt.name).values()))
    atoms = st.sampled_from(literals) | st.sampled_from(literals) | _atoms(pieces_of(fmt.name)) | st.sampled_from((*NAMES, *KEYS))
    return draw(_after_any_prompt(fmt, st.lists(atoms, max_size=12).map("".join)))


@st.composite
def _after_any_prompt(draw: DrawFn, fmt: chatcodec.Format, texts: SearchStrategy[str]) -> Completion:
    messages: list[Message] = [{"role": "user", "content": "hi"}]
    chosen = draw(options(fmt))
    prompt = fmt.render(messages, add_generation_prompt=True, **chosen)
    return Completion(draw(texts), prompt.text, draw(tools()) or None, messages, chosen, prompt.losses)


@st.composite
def spliced(draw: DrawFn, fmt: chatcodec.Format) -> Completion:
    """A canonical completion that was cut off, or of which a stretch was taken out, written twice, or replaced by another text."""
    made = draw(canonical(fmt))
    positions = st.integers(0, len(made.text))
    start, end = sorted((draw(positions), draw(positions)))
    stretch = made.text[start:end]
    literals = tuple(sorted(set(markers(fmt.name).values())))
    middle = draw(st.sampled_from(("", stretch * 2)) | st.sampled_from(literals) | texts(literals, max_size=2))
    rest = made.text[end:] if draw(st.integers(0, 3)) else ""
    return made._replace(text=made.text[:start] + middle + rest)


def completions(fmt: chatcodec.Format) -> SearchStrategy[Completion]:
    """Any completion: canonical, with forged markers, spliced, cut off, junk."""
    return canonical(fmt) | canonical(fmt, whole=True) | spliced(fmt) | spliced(fmt) | junk(fmt)


# ------------------------------------------------------------------------------------------------------- cuts, junk objects


@st.composite
def cuts(draw: DrawFn, text: str) -> list[str]:
    """A text cut into chunks: by the character, or at random places; a chunk may be empty."""
    if draw(st.integers(0, 3)) == 0:
        return list(text)
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


_SHAPE_KEYS = (
    "role", "content", "tool_calls", "function", "name", "arguments", "id", "type", "text", "tool_call_id", "reasoning", "parameters",
    "rol", "image",
)  # fmt: skip
_SHAPE_VALUES = ("system", "user", "assistant", "tool", "function", "text", "image", "\ud83d", float("nan"), float("inf"))


def junk_values() -> SearchStrategy[Any]:
    """Any JSON value, and what Python's `json` takes for one besides; keys and words that messages have are likely."""
    return st.recursive(
        scalars() | st.sampled_from(_SHAPE_VALUES),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_SHAPE_KEYS), inner, max_size=4),
        max_leaves=8,
    )


@st.composite
def damaged(draw: DrawFn, value: Json) -> Json:
    """A copy of a JSON value in which one place is junk, or gone."""
    if isinstance(value, dict) and value and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(value)))
        copy = {name: draw(damaged(inner)) if name == key else inner for name, inner in value.items()}
        return copy if draw(st.integers(0, 3)) else {name: inner for name, inner in copy.items() if name != key}
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        index = draw(st.integers(0, len(value) - 1))
        return [*value[:index], draw(damaged(value[index])), *value[index + 1 :]]
    return draw(junk_values())
