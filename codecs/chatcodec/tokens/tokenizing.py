"""Data sets of conversations to data sets of token ids and labels, in order, by as many processes as are wanted.

Rules of this module:

* every row that is read is counted: written, refused with its reason, or too long; nothing is left out in silence;
* rows are written in the order in which they were read, whatever the number of jobs, a chunk at a time, so that memory does
  not grow with the data; nothing stands under the target's name before all is written;
* chunks travel between processes as Arrow record batches; pyarrow and the tokenizer are imported when a run begins.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..data.checkpoint import writing
from ..data.files import Chunk, chunks_of, find_files, need, shown
from ..data.rows import conversation_of
from ..data.tables import rows_of
from ..data.workers import in_order, processes
from ..errors import CodecError
from ..formats import get_format
from .encoding import Encoded, encode, encode_batch
from .masks import Which, mask_of

OnLong = Literal["drop", "truncate"]
SUFFIXES = (".parquet", ".arrow")
MOST_REASONS = 20  #: refused rows whose reason is kept
ROW_GROUP_TOKENS = 1 << 21


@dataclass(frozen=True)
class Settings:
    """How rows become tokens.  `tokenizer` is the path of a `tokenizer.json`."""

    format: str
    tokenizer: str
    which: Which = "sampled"
    last_turn: bool = False
    kinds: frozenset[str] | None = None
    max_length: int | None = None
    on_long: OnLong = "drop"
    allow_missing: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Counts:
    """What became of the rows.

    `too_long` rows were dropped or truncated, `left_out` are turns that no longer render as they were sampled, `untrained` are
    written rows without a token to train on.  `lengths` counts rows by the length of all their tokens, before truncation.
    """

    rows: int = 0
    written: int = 0
    refused: int = 0
    too_long: int = 0
    tokens: int = 0
    trained: int = 0
    cut_tokens: int = 0
    untrained: int = 0
    left_out: int = 0
    lengths: Counter[int] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)

    def add(self, other: "Counts") -> None:
        """Add the counts of other rows."""
        for name in (each.name for each in fields(self) if each.type is int):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.lengths.update(other.lengths)
        self.reasons += other.reasons[: MOST_REASONS - len(self.reasons)]


class Done(NamedTuple):
    """A chunk that is tokenized: its rows as an Arrow stream, and its counts."""

    data: bytes
    counts: Counts


def tokenize(source: str, target: str, settings: Settings, *, jobs: int = 1, progress: Callable[[Counts], None] | None = None) -> Counts:
    """Tokenize a file, a directory of files or standard input (`-`) into a Parquet or Arrow file.

    Its columns are `input_ids`, `assistant_mask`, `labels` (-100 for what is not trained on) and `length`.  A row holds
    `messages` and, if need be, `tools` and `options`; one that is no conversation of the format is left out and counted.
    `progress` is called with the counts so far.  Raises CodecError.
    """
    if not target.endswith(SUFFIXES):
        raise CodecError(f"{shown(target)}: tokens are written as {' or '.join(SUFFIXES)}")
    if settings.max_length is not None and settings.max_length < 1:
        raise CodecError(f"max_length must be 1 or more, not {settings.max_length}")
    files = find_files(source)
    if any(Path(file).resolve() == Path(target).resolve() for file in files):
        raise CodecError("input and output must be different files")
    load_tokenizer(settings.tokenizer)
    get_format(settings.format).parse("", **settings.options)  # refuses options that no row could be rendered with
    counts, partial = Counts(), Path(f"{target}.partial")
    try:
        with writing(target), _writer(partial, target) as write:
            for done in _tokenized(files, settings, jobs):
                write(done.data)
                counts.add(done.counts)
                if progress is not None:
                    progress(counts)
        with writing(target):
            partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return counts


@lru_cache(maxsize=1)
def load_tokenizer(path: str) -> Any:
    """The tokenizer of a `tokenizer.json`, or of a directory that holds one.  Raises CodecError."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise CodecError('tokenizers is needed to read a tokenizer and is not installed: pip install "chatcodec[tokens]"') from None
    file = Path(path, "tokenizer.json") if Path(path).is_dir() else Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise CodecError(f"{shown(file)}: {error.strerror or error}") from None
    try:
        return Tokenizer.from_buffer(data)
    except Exception as error:  # the library raises bare ones
        raise CodecError(f"{shown(file)}: this is no tokenizer.json: {error}") from None


# ------------------------------------------------------------------------------------------------------------- the work


def _tokenized(files: Iterable[str], settings: Settings, jobs: int) -> Iterator[Done]:
    chunks = (chunk for file in files for chunk in chunks_of(file))
    if jobs == 1:
        for chunk in chunks:
            yield tokenize_chunk(chunk, settings)
        return
    with processes(jobs, start=_one_thread) as pool:
        for _, done in in_order(pool, jobs, tokenize_chunk, ((None, (chunk, settings)) for chunk in chunks)):
            yield done


def _one_thread() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there are as many processes as were asked for


def tokenize_chunk(chunk: Chunk, settings: Settings) -> Done:
    """The tokens of a chunk of rows."""
    codec, tokenizer = get_format(settings.format), load_tokenizer(settings.tokenizer)
    counts = Counts()
    rendered = []
    for number, row in rows_of(chunk):
        counts.rows += 1
        try:
            given = conversation_of(row)
            if isinstance(given, CodecError):
                raise given
            rendered.append((number, codec.render(given.messages, tools=given.tools, **{**given.options, **settings.options})))
        except (CodecError, TypeError) as error:  # an option of a row may have the name of a parameter
            _refuse(counts, chunk, number, error)
    rows = []
    for encoded in _encoded(rendered, tokenizer, settings, counts, chunk):
        mask = mask_of(encoded, which=settings.which, turns="last" if settings.last_turn else "all", kinds=settings.kinds)
        counts.lengths[len(mask)] += 1
        counts.left_out += len(mask.left_out)
        ids, trained = encoded.ids, list(mask)
        if settings.max_length is not None and len(ids) > settings.max_length:
            counts.too_long += 1
            if settings.on_long == "drop":
                continue
            counts.cut_tokens += len(ids) - settings.max_length
            ids, trained = ids[: settings.max_length], trained[: settings.max_length]
        counts.written += 1
        counts.tokens += len(ids)
        counts.trained += sum(trained)
        counts.untrained += not any(trained)
        rows.append((ids, trained))
    return Done(_packed(rows), counts)


def _encoded(rendered: list[Any], tokenizer: Any, settings: Settings, counts: Counts, chunk: Chunk) -> Iterator[Encoded]:
    """All at once, and one by one where one of them cannot be encoded."""
    try:
        yield from encode_batch([one for _, one in rendered], tokenizer, allow_missing=settings.allow_missing)
    except CodecError:
        for number, one in rendered:
            try:
                encoded = encode(one, tokenizer, allow_missing=settings.allow_missing)
            except CodecError as error:
                _refuse(counts, chunk, number, error)
            else:
                yield encoded


def _refuse(counts: Counts, chunk: Chunk, number: int, error: Exception) -> None:
    counts.refused += 1
    if len(counts.reasons) < MOST_REASONS:
        counts.reasons.append(f"{chunk.file}:{number}: {error}")


# ------------------------------------------------------------------------------------------------------------ the files


def _schema() -> Any:
    arrow = need("pyarrow")
    ids = arrow.list_(arrow.int32())
    return arrow.schema([("input_ids", ids), ("assistant_mask", arrow.list_(arrow.int8())), ("labels", ids), ("length", arrow.int32())])


def _packed(rows: list[tuple[list[int], list[int]]]) -> bytes:
    arrow = need("pyarrow")
    labels = [[token if on else -100 for token, on in zip(ids, mask, strict=True)] for ids, mask in rows]
    columns = [[ids for ids, _ in rows], [mask for _, mask in rows], labels, [len(ids) for ids, _ in rows]]
    schema = _schema()
    batch = arrow.record_batch([arrow.array(column, one.type) for column, one in zip(columns, schema, strict=True)], schema=schema)
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


class _writer:
    """Writes Arrow streams to a file, several to a row group."""

    def __init__(self, partial: Path, target: str) -> None:
        self._arrow, self._batches, self._tokens = need("pyarrow"), list[Any](), 0
        if target.endswith(".parquet"):
            self._file = need("pyarrow.parquet").ParquetWriter(str(partial), _schema(), compression="zstd")
        else:
            self._file = self._arrow.ipc.new_file(str(partial), _schema())

    def __enter__(self) -> Callable[[bytes], None]:
        return self.write

    def __exit__(self, *error: object) -> None:
        try:
            if error[0] is None:
                self._flush()
        finally:
            self._file.close()

    def write(self, data: bytes) -> None:
        for batch in self._arrow.ipc.open_stream(data):
            self._batches.append(batch)
            self._tokens += len(batch.column(0).values)
        if self._tokens >= ROW_GROUP_TOKENS:
            self._flush()

    def _flush(self) -> None:
        if self._batches:
            self._file.write_table(self._arrow.Table.from_batches(self._batches).combine_chunks())
        self._batches, self._tokens = [], 0
