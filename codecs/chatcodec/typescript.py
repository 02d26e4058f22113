"""Tools as flat TypeScript declarations, written by `typescript_writer`, and read back here.

    // Searches the web.
    type search = (_: {
    // What to look for.
    query: string,
    limit?: number, // default: 10
    }) => any;

Rules of this module:

* `read_declarations` undoes `declare`.  Many schemas share a declaration: the simplest is given, and it declares the very
  text that was read; a text that nothing declares is a DeclarationError.  What the text shows only by a side effect (a
  default without quotes comes of an enum) is read as the least that has it;
* `grammars/typescript.lark` says how terminals make up declarations, and `typescript_lexer` where they begin and end;
* `dropped` compares a function with what its declaration gives back.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import cache
from typing import Any, NamedTuple

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedToken

from .errors import parting
from .grammar import directory
from .kept import kept_by_content, kept_by_text
from .messages import IDLE_KEYS
from .typescript_lexer import BARE, DeclarationError, DeclarationLexer, plain_default, split_tools
from .typescript_writer import SHOWN_ALONE, declare, declare_once, is_object

__all__ = ["DeclarationError", "Declared", "declare", "declared", "read_declarations", "shown"]

Schema = dict[str, Any]


# -------------------------------------------------------------------------------------------------------------- reading


def read_declarations(text: str) -> list[dict[str, Any]]:
    """The tools that a `# Tools` section declares (the text behind its heading), each with its `function`.

    Raises DeclarationError where the text is nothing that `declare` writes.
    """
    pieces = split_tools(text)
    if len(pieces) > 1:  # each by itself: conversations of a data set share their tools
        with suppress(DeclarationError):
            return [{**tool, "function": deepcopy(tool["function"])} for piece in pieces for tool in _read_once(piece)]
    return _read(text)


def _read(text: str) -> list[Schema]:
    try:
        tools: list[Schema] = _parser().parse(text)  # type: ignore[assignment]
    except UnexpectedToken as error:
        raise DeclarationError(error.pos_in_stream or 0, "this cannot stand here") from None
    try:
        again = "\n\n".join(declare_once(tool["function"]) for tool in tools)
    except ValueError as error:
        raise DeclarationError(0, str(error)) from None
    if again != text:
        raise DeclarationError(parting(text, again), "this is not as a declaration is written")
    return tools


_read_once = kept_by_text(_read)


@cache
def _parser() -> Lark:
    text = (directory() / "typescript.lark").read_text(encoding="utf-8")
    return Lark(text, start="tools", parser="lalr", lexer=DeclarationLexer, transformer=_Builder())


def _put_default(schema: Schema, shown: str, *, bare: bool) -> None:
    """Read a default.  Only a schema with an enum shows a string without quotes."""
    enum = schema.get("enum") if bare else None
    if enum and shown in enum:
        schema["default"] = shown
        return
    default = plain_default(shown)
    if default is BARE or (enum and isinstance(default, str)):
        default = shown
        # a string's enum would be shown if it had strings in it
        schema.setdefault("enum", [None] if schema.get("type") == "string" else [shown])
    schema["default"] = default


def _put_comment(schema: Schema, comment: str, *, bare: bool, only_default: bool = False) -> bool:
    """Read the comment behind a variant.  Returns whether it does without the description that the object has."""
    described = schema.get("description")
    if comment.startswith("default: ") and (only_default or _is_default(schema, comment[9:], bare=bare)):
        _put_default(schema, comment[9:], bare=bare)
        return described is not None
    at = comment.rfind(" default: ") if described is None else len(described)
    if comment.startswith(" default: ", at) and at >= 0 and (described is not None or _is_default(schema, comment[at + 10 :], bare=bare)):
        _put_default(schema, comment[at + 10 :], bare=bare)
        comment = comment[:at]
    schema["description"] = comment
    return False


def _is_default(schema: Schema, shown: str, *, bare: bool) -> bool:
    """Whether a text is better read as a default than as the end of a description."""
    if bare and schema.get("enum"):
        return shown in schema["enum"] or not isinstance(plain_default(shown), str)
    return plain_default(shown) is not BARE


def _by_type(tokens: list[Token]) -> dict[str, str]:
    return {token.type: str(token) for token in tokens}


def _named(name: str) -> tuple[str, bool]:
    """A property's name, and whether the property must be there."""
    return str(name.removesuffix("?")), not name.endswith("?")


def _nullable(schema: Schema, shown: dict[str, str]) -> Schema:
    return {**schema, "nullable": True} if "NULL" in shown else schema


_decode = json.JSONDecoder().raw_decode


class _Builder(Transformer[Token, Any]):
    """Builds tools from the grammar's rules."""

    def tools(self, made: list[Any]) -> list[Schema]:
        return [{"type": "function", "function": function} for function in made]

    def typed(self, made: list[Any]) -> Schema:
        *docs, name, parameters = made
        function: Schema = {"name": str(name)}
        if docs:
            function["description"] = "\n".join(docs)
        if parameters == {"type": "string"}:
            parameters["type"] = ["string"]  # or the tool would be declared the other way
        if parameters:
            function["parameters"] = parameters
        return function

    def headed(self, made: list[Token]) -> Schema:
        name, text = map(str, made)
        return {"name": name, **({"description": text} if text else {}), "parameters": {"type": "string"}}

    def words(self, made: list[Token]) -> Schema:
        words = made[0].split(" | ")
        if words == ["any", "null"]:
            return {"nullable": True}
        if len(words) == 1:
            return {} if words == ["any"] else {"type": words[0] if words[0] in SHOWN_ALONE else words}
        return {"type": words}

    def literals(self, made: list[Token]) -> Schema:
        shown, enum, end = str(made[0]), [], 0
        while shown.startswith('"', end):
            member, end = _decode(shown, end)
            enum.append(member)
            end += len(" | ")
        schema: Schema = {"type": "string", "enum": enum}
        if end < len(shown):  # a word, which can only be null
            schema["nullable"] = True
        return schema

    def nothing(self, made: list[Token]) -> Schema:
        return {"oneOf": []}

    def any_array(self, made: list[Any]) -> Schema:
        return {"type": "array"}

    def array(self, made: list[Schema]) -> Schema:
        return {"type": "array", "items": made[0] or True}

    def union(self, made: list[tuple[Schema, str | None]]) -> Schema:
        for schema, comment in made:
            if comment is not None:
                _put_comment(schema, comment, bare=False)
        return {"oneOf": [schema for schema, _ in made]}

    def variant(self, made: list[Any]) -> tuple[Schema, str | None]:
        schema, *tokens = made
        shown = _by_type(tokens)
        return _nullable(schema, shown), shown.get("COMMENT")

    def object(self, made: list[Any]) -> Schema:
        schema: Schema = {"type": "object"}
        if made and isinstance(made[0], Token):
            schema["description"] = str(made.pop(0))
        schema["properties"] = {name: spec for name, _, spec in made}
        if required := [name for name, needed, _ in made if needed]:
            schema["required"] = required
        return schema

    def notes(self, made: list[Token]) -> Schema:
        notes = {"title" if note.type == "TITLE" else "description": str(note) for note in made if note.type in ("TITLE", "TEXT")}
        if any(note.type == "EXAMPLES" for note in made):
            # those that are no strings are not shown
            return {**notes, "examples": [str(note) for note in made if note.type == "EXAMPLE"] or [None]}
        return notes

    def property(self, made: list[Any]) -> tuple[str, bool, Schema]:
        notes, name, schema, *tokens = made
        shown = _by_type(tokens)
        spec: Schema = {**_nullable(schema, shown), **notes}
        if "DEFAULT" in shown:
            _put_default(spec, shown["DEFAULT"], bare=True)
        return *_named(name), spec

    def choice(self, made: list[Any]) -> tuple[str, bool, Schema]:
        notes, *tokens = (part for part in made if not isinstance(part, tuple))
        shown = _by_type(tokens)
        variants: list[tuple[Schema, str | None]] = [part for part in made if isinstance(part, tuple)]
        spec: Schema = {"oneOf": [schema for schema, _ in variants], **notes}
        for number, (schema, comment) in enumerate(variants):
            described = schema.get("description")
            noted_first = "description" in notes and not number
            if described is not None if comment is None else _put_comment(schema, comment, bare=True, only_default=noted_first):
                # The comment leaves out what the property says too; and that, in turn, is left out if the first variant says it.
                if "description" not in notes:
                    spec["description"] = described
                    variants[0][0].setdefault("description", described)
        if "NOTED_DEFAULT" in shown:
            _put_default(spec, shown["NOTED_DEFAULT"], bare=True)
        return *_named(shown["NAME"]), spec


# ------------------------------------------------------------------------------------------------------ what is not shown

#: What stands in a function or a schema under some keys; elsewhere there are values, which are shown whole or not at all.
_INNER = {"parameters": "schema", "items": "schema", "properties": "schemas", "oneOf": "variants", "required": "names"}
_MISSING = object()


def shown(function: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a function's declaration shows of it; the function itself if its declaration cannot be read."""
    try:
        found: Schema = _read_once(declare(function))[0]["function"]
    except ValueError:
        return function
    return found


class Declared(NamedTuple):
    """A function's declaration, and the paths of what it does not show: `parameters.properties.limit.minimum`."""

    text: str
    dropped: tuple[str, ...]


@kept_by_content
def declared(function: Mapping[str, Any]) -> Declared:
    """A function's declaration and what it does not show.  Raises ValueError for a function that cannot be declared."""
    text = declare(function)
    try:
        shown = _read_once(text)[0]["function"]
    except DeclarationError:
        return Declared(text, ("parameters",))
    return Declared(text, tuple(_differences(function, shown)))


def _differences(function: Mapping[str, Any], shown_function: Mapping[str, Any]) -> Iterator[str]:
    pending: list[tuple[str, str, Any, Any]] = [("function", "", function, shown_function)]
    while pending:
        kind, path, given, shown = pending.pop()
        if kind in ("function", "schema", "schemas") and is_object(given):
            if kind == "schema":
                given, shown = _usual(given), _usual(shown)
            if not is_object(shown):
                shown = {}  # nothing, or `True`, which allows anything
            for key in reversed(given):
                if kind == "schemas" or given[key] or key not in IDLE_KEYS or key in shown:
                    inner = "schema" if kind == "schemas" else _INNER.get(key, "value")
                    pending.append((inner, f"{path}.{key}" if path else key, given[key], shown.get(key, _MISSING)))
        elif kind == "variants" and isinstance(given, (list, tuple)) and isinstance(shown, list) and len(given) == len(shown):
            for index in reversed(range(len(given))):
                pending.append(("schema", f"{path}[{index}]", given[index], shown[index]))
        elif kind == "names" and isinstance(given, (list, tuple)) and isinstance(shown, list):
            if set(map(str, given)) != set(shown):  # their order says nothing
                yield path
        elif given != shown and not (kind == "schema" and given is True and shown == {}):
            yield path


def _usual(schema: Any) -> Any:
    """A schema with the one spelling of what has two: a nullable type is a list of types."""
    if is_object(schema) and schema.get("nullable") is True and str(schema.get("type")) in SHOWN_ALONE and not schema.get("enum"):
        return {**{key: value for key, value in schema.items() if key != "nullable"}, "type": [schema["type"], "null"]}
    return schema
