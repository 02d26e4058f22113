"""The files of a data set, and what stands in them as chunks: JSON Lines (plain, gzip, Zstandard), Parquet and Arrow.

Rules of this module:

* memory is flat: a file is read in *chunks*, stretches of about a quarter of a megabyte that a worker can read by itself;
* where a chunk ends depends on the file alone, never on how fast or by how many it is read, so that every run sees the same;
* what a file is, its first bytes say; names matter only for the files of a directory, which come in the order of names;
* a file that cannot be read is one clear CodecError.
"""

import gzip
import json
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import CodecError

PIPE = "-"
BLOCK = 1 << 18
CHUNK_BYTES = 1 << 18  #: a chunk of lines ends with the first line end at or behind so many bytes
CHUNK_ROWS = 256  #: a chunk of an Arrow table has at most so many rows
LONGEST_LINE = 1 << 26
ZSTD_SLICE = 1 << 12  #: compressed bytes taken at once, so that a bomb cannot fill the memory

LINE_SUFFIXES = (".jsonl", ".ndjson", ".json")
PACKED_SUFFIXES = (".gz", ".zst")
TABLE_SUFFIXES = (".parquet", ".arrow", ".arrows", ".feather", ".ipc")
SUFFIXES = (*LINE_SUFFIXES, *(line + packed for line in LINE_SUFFIXES for packed in PACKED_SUFFIXES), *TABLE_SUFFIXES)

#: What `datasets` keeps beside its data.
_ABOUT_DATA = frozenset(("dataset_dict.json", "dataset_info.json", "dataset_infos.json", "state.json"))
_BOM = b"\xef\xbb\xbf"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_PARQUET, _ARROW, _STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"
_OUTDATED = b"FEA1"
#: What a name promises, and the first bytes that keep the promise.
_PROMISES = {".gz": (_GZIP,), ".zst": (_ZSTD,), ".parquet": (_PARQUET,)} | dict.fromkeys(TABLE_SUFFIXES[1:], (_ARROW, _STREAM, _OUTDATED))


class Chunk(NamedTuple):
    """A stretch of a file.

    `first` is the number of its first line or row in the file, from 1, `rows` how many there are; `end` how far into the
    file, in bytes of the disk, reading has come.  `data` are whole lines, or with `is_table` an Arrow stream.  With `fault`
    it is one line that is refused unread, and `data` only its beginning.
    """

    file: str
    first: int
    rows: int
    end: int
    data: bytes
    is_table: bool = False
    fault: str | None = None


def need(module: str) -> Any:
    """A module of the extra `data`, imported now.  Raises CodecError where it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        raise _missing(module) from None


def check(module: str) -> None:
    """Raise CodecError where a module is not installed; imports nothing, for pyarrow starts threads as it is imported."""
    if find_spec(module) is None:
        raise _missing(module)


def _missing(module: str) -> CodecError:
    name = module.partition(".")[0]
    return CodecError(f'{name} is needed for this file and is not installed: pip install "chatcodec[data]"')


def shown(file: str | Path) -> str:
    """How an error names a file."""
    return "standard input" if file == PIPE else repr(str(file))


@contextmanager
def reading(file: str) -> Iterator[None]:
    """Turn what the libraries raise for a file that cannot be read into one clear CodecError."""
    try:
        yield
    except CodecError:
        raise
    except FileNotFoundError:
        raise CodecError(f"{shown(file)}: no such file") from None
    except (EOFError, zlib.error) as error:
        raise CodecError(f"{shown(file)}: the gzip data are damaged or cut off: {error}") from None
    except (OSError, ValueError, KeyError, NotImplementedError, MemoryError) as error:  # pyarrow's own are among their heirs
        raise CodecError(f"{shown(file)}: {getattr(error, 'strerror', None) or error}") from None


# ------------------------------------------------------------------------------------------------------------ which files


def find_files(source: str) -> list[str]:
    """The files of a source: itself, or those of a directory, in the order of their names.

    Of a directory that `datasets` saved (`save_to_disk`) the files that its `state.json` lists, of a dictionary of data sets
    those of all splits in turn; of any other directory all files with one of `SUFFIXES`, at any depth.  Names that begin with
    a dot or an underscore, and what `datasets` writes about its data, are passed over.  Raises CodecError if there is none.
    """
    if source == PIPE:
        return [PIPE]
    with reading(source):
        path = Path(source)
        if not path.is_dir():
            path.stat()
            return [source]
        found = [str(file) for file in _walk(path)]
    if not found:
        raise CodecError(f"{shown(source)}: there is no data file in the directory; looked for {', '.join(SUFFIXES)}")
    return found


def _walk(folder: Path) -> Iterator[Path]:
    listing, state = folder / "dataset_dict.json", folder / "state.json"
    if listing.is_file():
        for split in _saved(listing, "splits"):
            yield from _walk(folder / split)
    elif state.is_file():
        if _saved(state, "_indices_data_files", needed=False):
            raise CodecError(f"{shown(folder)}: the data set is a selection of its rows; save it with flatten_indices() first")
        for entry in _saved(state, "_data_files"):
            yield folder / (entry["filename"] if isinstance(entry, dict) else entry)
    else:
        for path in sorted(folder.iterdir(), key=lambda path: path.name):
            if path.name.startswith((".", "_")) or path.name in _ABOUT_DATA:
                continue
            if path.is_dir():
                if not path.is_symlink():
                    yield from _walk(path)
            elif path.name.endswith(SUFFIXES):
                yield path


def _saved(path: Path, key: str, *, needed: bool = True) -> list[Any]:
    """A list of names out of a file of `datasets`."""
    try:
        found = json.loads(path.read_bytes()).get(key) or []
        names = [entry["filename"] if isinstance(entry, dict) else entry for entry in found]
    except (ValueError, AttributeError, KeyError, TypeError):
        raise CodecError(f"{shown(path)}: this should be a JSON object with a list of {key}") from None
    if not all(isinstance(name, str) and Path(name).name == name for name in names) or (needed and not names):
        raise CodecError(f"{shown(path)}: {key} should be a list of names, not {found!r}")
    return names


def size_of(file: str) -> int | None:
    """The bytes of a file, or None for a pipe."""
    if file == PIPE:
        return None
    with reading(file):
        return Path(file).stat().st_size


# ----------------------------------------------------------------------------------------------------------------- chunks


def chunks_of(file: str) -> Iterator[Chunk]:
    """The chunks of one file.  Raises CodecError where it cannot be read, the chunks before that place being given."""
    with reading(file):
        if file == PIPE:
            if sys.stdin is None:
                raise CodecError("standard input: it is closed")
            given: Any = sys.stdin.buffer  # a program may have put something else there
            yield from _chunks(file, given if isinstance(given, BufferedReader) else BufferedReader(given))
        else:
            with Path(file).open("rb") as raw:
                yield from _chunks(file, raw)


def _chunks(file: str, raw: BufferedReader) -> Iterator[Chunk]:
    head = raw.peek(8)[:8]
    promise = next((heads for suffix, heads in _PROMISES.items() if file.endswith(suffix)), (b"",))
    if head.startswith(_OUTDATED):
        raise CodecError(f"{shown(file)}: version 1 of Feather is outdated; write it anew as Arrow or Parquet")
    if not head.startswith(promise) and not (head and file.endswith(PACKED_SUFFIXES)):  # what is unpacked already may keep its name
        raise CodecError(f"{shown(file)}: {'this is not what the name says' if head else 'the file is empty'}")
    if head.startswith((_PARQUET, _ARROW, _STREAM)):
        if file == PIPE:
            raise CodecError("standard input: Parquet and Arrow cannot be read from a pipe; give the file's name")
        yield from _table_chunks(file, _batches(file, head))
    else:
        yield from _line_chunks(file, _blocks(file, raw, head), raw if raw.seekable() else None)


def _blocks(file: str, raw: BufferedReader, head: bytes) -> Iterator[bytes]:
    """The bytes of JSON Lines, unpacked."""
    if head.startswith(_ZSTD):
        yield from _unpacked(file, raw)
        return
    read = gzip.GzipFile(fileobj=raw).read1 if head.startswith(_GZIP) else raw.read1
    first = read(BLOCK).removeprefix(_BOM)
    if file.endswith(".json") and first.lstrip().startswith(b"["):
        raise CodecError(f"{shown(file)}: one JSON list; what is read is JSON Lines, an object a line")
    yield first
    while block := read(BLOCK):
        yield block


def _unpacked(file: str, raw: BufferedReader) -> Iterator[bytes]:
    zstandard = need("zstandard")
    engine: Any = None
    first = True
    while waiting := raw.read(ZSTD_SLICE):
        while waiting:
            engine = engine or zstandard.ZstdDecompressor().decompressobj()
            try:
                block: bytes = engine.decompress(waiting)
            except zstandard.ZstdError as error:
                raise CodecError(f"{shown(file)}: the Zstandard data are damaged: {error}") from None
            waiting = engine.unused_data if engine.eof else b""
            engine = None if engine.eof else engine
            if block:
                yield block.removeprefix(_BOM) if first else block
                first = False
    if engine:
        raise CodecError(f"{shown(file)}: the Zstandard data are cut off")


def _line_chunks(file: str, blocks: Iterator[bytes], raw: BufferedReader | None) -> Iterator[Chunk]:
    """Whole lines, at least `CHUNK_BYTES` of them; only the last chunk of a file may have less."""
    pending = bytearray()
    number, searched, skipping = 1, 0, False
    for block in blocks:
        if skipping:  # the rest of a line that is too long
            if (end := block.find(b"\n")) < 0:
                continue
            block, skipping = block[end + 1 :], False
        pending += block
        start, end = 0, pending.find(b"\n", max(searched, CHUNK_BYTES))
        while end >= 0:
            data = bytes(memoryview(pending)[start : end + 1])
            lines = data.count(b"\n")
            yield Chunk(file, number, lines, raw.tell() if raw else 0, data)
            number, start = number + lines, end + 1
            end = pending.find(b"\n", start + CHUNK_BYTES)
        del pending[:start]
        searched = len(pending)
        if searched > LONGEST_LINE:
            start = pending.rfind(b"\n") + 1
            if searched - start > LONGEST_LINE:
                if start:
                    yield Chunk(file, number, pending.count(b"\n"), raw.tell() if raw else 0, bytes(pending[:start]))
                    number += pending.count(b"\n")
                fault = f"a line of more than {LONGEST_LINE >> 20} MiB"
                yield Chunk(file, number, 1, raw.tell() if raw else 0, bytes(pending[start : start + 1000]), fault=fault)
                number, searched, skipping = number + 1, 0, True
                pending.clear()
    if pending:
        data = bytes(pending)
        yield Chunk(file, number, data.count(b"\n") + (not data.endswith(b"\n")), raw.tell() if raw else 0, data)


def _batches(file: str, head: bytes) -> Iterator[tuple[Any, int]]:
    """The record batches of a table, and how far into the file each ends."""
    arrow = need("pyarrow")
    if head.startswith(_PARQUET):
        done, size = 0, Path(file).stat().st_size
        with need("pyarrow.parquet").ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=CHUNK_ROWS):
                done += batch.num_rows
                yield batch, size * done // table.metadata.num_rows
        return
    with arrow.OSFile(file) as opened:  # no memory map: a file that shrinks would kill the process
        if head.startswith(_ARROW):
            reader = need("pyarrow.ipc").open_file(opened)
            batches = map(reader.get_batch, range(reader.num_record_batches))
        else:
            batches = need("pyarrow.ipc").open_stream(opened)
        for batch in batches:
            batch.validate(full=True)  # pyarrow believes what the file says of its buffers, and damaged ones end the process
            yield batch, opened.tell()


def _table_chunks(file: str, batches: Iterator[tuple[Any, int]]) -> Iterator[Chunk]:
    arrow, ipc = need("pyarrow"), need("pyarrow.ipc")
    number = 1
    for batch, end in batches:
        names = batch.schema.names
        if len(set(names)) < len(names):
            raise CodecError(f"{shown(file)}: two columns of one name among {', '.join(names)}")
        each = max(1, min(CHUNK_ROWS, CHUNK_BYTES * 4 * batch.num_rows // max(batch.nbytes, 1)))
        for start in range(0, batch.num_rows, each):
            part = batch.slice(start, each)
            sink = arrow.BufferOutputStream()
            with ipc.new_stream(sink, part.schema) as writer:
                writer.write_batch(part)
            yield Chunk(file, number, part.num_rows, end, sink.getvalue().to_pybytes(), is_table=True)
            number += part.num_rows
