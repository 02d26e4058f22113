"""Rows of data sets out of files: plain dicts out of JSON Lines, Parquet and Arrow, one file or a directory of them.

Rules of this module:

* a row is a plain dict of JSON's values; what is no row is a `BadRow` that says why, with its number, and no error;
* a struct of Arrow has all its keys in every row: which nulls stand for absent keys is not judged here, but by `repairs`;
* days and times become ISO 8601 text, decimals text, bytes base64 text, maps and structs objects, `arrow.json` what it says.
"""

import base64
import json
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from pydantic_core import from_json

from .files import Chunk, chunks_of, find_files, need


class BadRow(NamedTuple):
    """What stands where a row should be: why it is none, and the line itself.

    Bytes that are no UTF-8 are halves of surrogate pairs in `line` (Python's `surrogateescape`), so nothing of it is lost.
    """

    code: str
    reason: str
    line: str


#: Why something is no row, as `BadRow.code`.
BAD_ROWS = frozenset(("invalid_json", "invalid_utf8", "invalid_value", "line_too_long", "not_an_object"))
Row = dict[str, Any]
Convert = Callable[[Any], Any]


def read_rows(source: str) -> Iterator[tuple[int, Row | BadRow]]:
    """All rows of a file, a directory or a pipe (`-`), each with its number in its file.  Raises CodecError."""
    for file in find_files(source):
        for chunk in chunks_of(file):
            yield from rows_of(chunk)


def rows_of(chunk: Chunk) -> Iterator[tuple[int, Row | BadRow]]:
    """The rows of a chunk with their numbers; blank lines are none."""
    if chunk.fault:
        yield chunk.first, BadRow("line_too_long", chunk.fault, chunk.data.decode("utf-8", "surrogateescape"))
    elif chunk.is_table:
        yield from enumerate(_table_rows(chunk.data), chunk.first)
    else:
        for number, line in enumerate(chunk.data.split(b"\n"), chunk.first):
            try:
                row = from_json(line, allow_inf_nan=False)
            except ValueError:
                if not line or line.isspace():
                    continue
                row = _second_reading(line)
            if type(row) is not dict:
                if type(row) is not BadRow:
                    row = BadRow("not_an_object", f"a row must be an object, not {_kind(row)}", line.decode("utf-8", "surrogateescape"))
            yield number, row


def _second_reading(line: bytes) -> Any:
    """What Python's own reader makes of a line: it knows more (halves of surrogate pairs, deep nesting) and says where."""
    text = line.decode("utf-8", "surrogateescape")
    try:
        return json.loads(line.decode(), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        return BadRow("invalid_utf8", f"invalid UTF-8 at byte {error.start + 1} of the line: {error.reason}", text)
    except json.JSONDecodeError as error:
        return BadRow("invalid_json", f"invalid JSON at column {error.colno}: {error.msg}", text)
    except RecursionError:
        return BadRow("invalid_json", "the JSON nests too deeply", text)
    except ValueError as error:
        return BadRow("invalid_json", f"invalid JSON: {error}", text)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _kind(value: Any) -> str:
    kinds = {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def _table_rows(data: bytes) -> Iterator[Row | BadRow]:
    batch = need("pyarrow.ipc").open_stream(data).read_next_batch()
    plain = {field.name: convert for field in batch.schema if (convert := _plainly(field.type))}
    try:
        rows = batch.to_pylist()
    except (ValueError, OverflowError):  # text that is no UTF-8, or a day that Python does not know: whose is it?
        rows = chain.from_iterable(_alone(batch.slice(index, 1)) for index in range(batch.num_rows))
    for row in rows:
        if type(row) is dict:
            try:
                for name, convert in plain.items():
                    if row[name] is not None:
                        row[name] = convert(row[name])
            except (ValueError, RecursionError) as error:
                row = BadRow("invalid_json", f"column {name!r}: {error or 'it nests too deeply'}", str(row[name]))
        yield row


def _alone(batch: Any) -> list[Any]:
    try:
        rows: list[Any] = batch.to_pylist()
    except (ValueError, OverflowError) as error:
        return [BadRow("invalid_value", str(error), "")]
    return rows


def _plainly(kind: Any) -> Convert | None:
    """What makes JSON's values of those that Arrow gives for a type; nothing where they are such already.

    Days and times become ISO 8601 text, decimals text, bytes base64 text, maps and structs objects, JSON what it says.
    """
    types = need("pyarrow").types
    if getattr(kind, "extension_name", None) == "arrow.json":
        return lambda text: json.loads(text, parse_constant=_no_constant)
    if hasattr(kind, "storage_type"):
        return _plainly(kind.storage_type)
    if types.is_dictionary(kind):
        return _plainly(kind.value_type)
    if types.is_struct(kind):
        inner = {field.name: convert for field in kind if (convert := _plainly(field.type))}
        if not inner:
            return None
        return lambda value: {key: one if one is None or key not in inner else inner[key](one) for key, one in value.items()}
    if types.is_map(kind):
        item = _plainly(kind.item_type) or _same
        return lambda pairs: {str(key): one if one is None else item(one) for key, one in pairs}
    if types.is_nested(kind) and hasattr(kind, "value_type"):
        each = _plainly(kind.value_type)
        return each and (lambda values: [one if one is None else each(one) for one in values])
    if types.is_temporal(kind):
        return lambda value: value.isoformat() if hasattr(value, "isoformat") else str(value)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or types.is_binary_view(kind):
        return lambda value: base64.b64encode(value).decode()
    return str if types.is_decimal(kind) else None


def _same(value: Any) -> Any:
    return value
