"""Rows of data sets into files: JSON Lines (plain, gzip, Zstandard), Parquet and Arrow.

Rules of this module:

* rows become bytes a chunk at a time, so that workers can do it; the same chunks give the same bytes, always;
* a packed file has a gzip member or a Zstandard frame a chunk, so that it can be cut and continued between any two;
* Parquet and Arrow have one schema for a file, and it is known only at the end.  So chunks are *staged* first, each an Arrow
  stream with types of its own, and the file is put together from them;
* a column whose values are all text, all integers, all floats or all booleans has that type.  Every other column (objects,
  lists, a mixture) is JSON text of Arrow's type `arrow.json`, which `datasets` reads as values (its feature `Json`): one
  struct type for values that differ from row to row would add nulls and change numbers.  An absent key and null are null.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO, Literal

from ..errors import CodecError
from .files import LINE_SUFFIXES, PACKED_SUFFIXES, PIPE, SUFFIXES, TABLE_SUFFIXES, check, need, shown
from .tables import Row

Kind = Literal["lines", "gz", "zst", "parquet", "arrow", "arrows"]
CellKind = Literal["text", "integer", "float", "boolean", "json"]
Cell = tuple[CellKind, Any] | None
Kinds = dict[str, CellKind | None]
"""The columns in the order in which they came, and what their cells are; None where there are only nulls so far."""

GZIP_LEVEL = 6
ROWS_AT_ONCE = 256
ROW_GROUP_BYTES = 1 << 24
_PREFIX = 8  #: bytes before a staged chunk that say how long it is
_INTEGERS = range(-(1 << 63), 1 << 63)
_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def kind_of(target: str) -> Kind:
    """What a file is to be, by its name.  Raises CodecError for a name that does not say."""
    name = Path(target).name.lower()
    packing = Path(name).suffix
    if target == PIPE or name.endswith(LINE_SUFFIXES):
        return "lines"
    if packing in PACKED_SUFFIXES and name.removesuffix(packing).endswith(LINE_SUFFIXES):
        if packing == ".zst":
            check("zstandard")
            return "zst"
        return "gz"
    if packing in TABLE_SUFFIXES:
        check("pyarrow")
        return "parquet" if packing == ".parquet" else "arrows" if packing == ".arrows" else "arrow"
    raise CodecError(f"{shown(target)}: the name does not say what the file is to be; it may end with {', '.join(SUFFIXES)}")


def write_rows(target: str, rows: Iterable[Row]) -> None:
    """Write rows to a file, whose name says what it is.  Raises CodecError for a row that JSON cannot hold.

    Nothing stands under the name before all is written.
    """
    kind = kind_of(target)
    kinds: Kinds = {}
    temporary = Path(f"{target}.partial")
    pending = iter(rows)
    try:
        with temporary.open("wb") as out:
            number = 0
            while some := list(islice(pending, ROWS_AT_ONCE)):
                try:
                    if is_table(kind):
                        staged, found = stage([cells_of(row) for row in some])
                        out.write(staged)
                        merge_kinds(kinds, found)
                    else:
                        out.write(pack(b"".join(map(line_of, some)), kind))
                except (ValueError, TypeError, RecursionError) as error:
                    raise CodecError(f"one of the rows {number + 1} to {number + len(some)}: {error}") from None
                number += len(some)
            if not number:
                out.write(empty(kind))
        if is_table(kind):
            assemble(temporary, kinds, f"{target}.assembled", kind)
            temporary.unlink()
            temporary = Path(f"{target}.assembled")
        temporary.replace(target)
    except OSError as error:
        raise CodecError(f"{shown(target)}: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def is_table(kind: Kind) -> bool:
    """Whether the chunks of such a file are staged."""
    return kind in ("parquet", "arrow", "arrows")


# ------------------------------------------------------------------------------------------------------------- JSON Lines


def line_of(value: Mapping[str, Any]) -> bytes:
    """A row as a line.  Halves of surrogate pairs are written as JSON escapes them.  Raises ValueError or TypeError."""
    return _ENCODE(value).encode("utf-8", "backslashreplace") + b"\n"


def pack(lines: bytes, kind: Kind) -> bytes:
    """Lines as they stand in a file of that kind."""
    if not lines or kind == "lines":
        return lines
    return _packed(lines, kind)


def empty(kind: Kind) -> bytes:
    """What a file without rows holds, as far as it is not assembled."""
    return _packed(b"", kind) if kind in ("gz", "zst") else b""


def _packed(lines: bytes, kind: Kind) -> bytes:
    if kind == "gz":
        return gzip.compress(lines, GZIP_LEVEL, mtime=0)
    packed: bytes = need("zstandard").ZstdCompressor().compress(lines)
    return packed


# ----------------------------------------------------------------------------------------------------------------- tables


def cells_of(row: Row) -> dict[str, Cell]:
    """A row as cells.  Raises ValueError or TypeError for what JSON cannot hold, NaN and Infinity among it."""
    return {name: _cell(value) for name, value in row.items()}


def _cell(value: Any) -> Cell:
    kind = type(value)
    if value is None:
        return None
    if kind is str:
        try:
            value.encode()
        except UnicodeEncodeError:
            return "json", _json(value)
        return "text", value
    if kind is bool:
        return "boolean", value
    if kind is int and value in _INTEGERS:
        return "integer", value
    if kind is float and isfinite(value):
        return "float", value
    return "json", _json(value)


def _json(value: Any) -> str:
    return _ENCODE(value).encode("utf-8", "backslashreplace").decode()


def merge_kinds(kinds: Kinds, more: Kinds) -> None:
    """Add what further rows hold to what is known of the columns."""
    for name, kind in more.items():
        known = kinds.get(name)
        kinds[name] = known if kind is None else kind if known in (None, kind) else "json"


def stage(rows: list[dict[str, Cell]]) -> tuple[bytes, Kinds]:
    """Rows as a staged chunk, and the kinds of its columns."""
    kinds: Kinds = {}
    for row in rows:
        merge_kinds(kinds, {name: cell and cell[0] for name, cell in row.items()})
    if not rows:
        return b"", kinds
    arrow, ipc = need("pyarrow"), need("pyarrow.ipc")
    columns = []
    for name, kind in kinds.items():
        cells = (row.get(name) for row in rows)
        columns.append(_array([cell and (_json(cell[1]) if cell[0] != kind else cell[1]) for cell in cells], kind))
    fields = [arrow.field(name, column.type) for name, column in zip(kinds, columns, strict=True)]
    schema = arrow.schema(fields, {"rows": str(len(rows))})  # of a batch without columns nothing else would tell
    batch = arrow.record_batch(columns, schema=schema)
    sink = arrow.BufferOutputStream()
    with ipc.new_stream(sink, schema, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return len(data).to_bytes(_PREFIX, "little") + data, kinds


def _type(kind: CellKind | None) -> Any:
    arrow = need("pyarrow")
    types = {"text": arrow.string, "integer": arrow.int64, "float": arrow.float64, "boolean": arrow.bool_, None: arrow.null}
    return arrow.json_(arrow.string()) if kind == "json" else types[kind]()


def _array(values: list[Any], kind: CellKind | None) -> Any:
    arrow = need("pyarrow")
    if kind != "json":
        return arrow.array(values, _type(kind))
    return arrow.ExtensionArray.from_storage(_type(kind), arrow.array(values, arrow.string()))


def assemble(staged: Path, kinds: Kinds, target: str, kind: Kind) -> None:
    """Put a Parquet or Arrow file together from the staged chunks of a file, in row groups of bounded size.

    Raises OSError as files do.
    """
    if not kinds and staged.stat().st_size:
        raise CodecError(f"{shown(target)}: rows without any column, which only JSON Lines can hold")
    arrow, ipc = need("pyarrow"), need("pyarrow.ipc")
    schema = arrow.schema([arrow.field(name, _type(each)) for name, each in kinds.items()])
    with staged.open("rb") as source, arrow.OSFile(target, "wb") as sink:
        batches = (_fitted(batch, kinds, schema) for batch in _unstaged(source))
        if kind == "parquet":
            with need("pyarrow.parquet").ParquetWriter(sink, schema, compression="zstd") as writer:
                for group in _grouped(batches):
                    table = arrow.Table.from_batches(group)
                    writer.write_table(table, row_group_size=table.num_rows)
        else:
            with (ipc.new_file if kind == "arrow" else ipc.new_stream)(sink, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)


def _unstaged(source: BinaryIO) -> Iterator[Any]:
    ipc = need("pyarrow.ipc")
    while prefix := source.read(_PREFIX):
        yield ipc.open_stream(source.read(int.from_bytes(prefix, "little"))).read_next_batch()


def _fitted(batch: Any, kinds: Kinds, schema: Any) -> Any:
    """A staged batch with the columns of the whole file."""
    arrow = need("pyarrow")
    columns = []
    rows = int(batch.schema.metadata[b"rows"])
    for field, kind in zip(schema, kinds.values(), strict=True):
        column = batch.column(field.name) if field.name in batch.schema.names else None
        if column is None or arrow.types.is_null(column.type):
            column = _array([None] * rows, kind)
        elif column.type != field.type:  # it turned out to be a mixture
            column = _array([None if value is None else _json(value) for value in column.to_pylist()], kind)
        columns.append(column)
    return arrow.record_batch(columns, schema=schema)


def _grouped(batches: Iterable[Any]) -> Iterator[list[Any]]:
    group: list[Any] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += batch.nbytes
        if size >= ROW_GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
