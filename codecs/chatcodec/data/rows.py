"""Conversations out of the rows of a data set: `messages`, `tools` and perhaps `options`.

Rules of this module: a column may hold its JSON as text, as Parquet files often do; what is no conversation is a CodecError
that stands in the row's place, so that one bad row does not end the reading.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import CodecError, nearest
from .files import chunks_of, find_files
from .tables import BadRow, Row, rows_of


class Given(NamedTuple):
    """A row's conversation: what the messages hold is the format's to judge."""

    messages: list[Any]
    tools: list[Any] | None
    options: dict[str, Any]


def read_conversations(source: str) -> Iterator[tuple[str, Given | CodecError]]:
    """Every row of a file, a directory or a pipe (`-`): its number, with the file's name if there are more, and what it holds.

    Raises CodecError for a source that cannot be read.
    """
    files = find_files(source)
    for file in files:
        name = "" if len(files) == 1 else f"{Path(file).name}:"
        for chunk in chunks_of(file):
            for number, row in rows_of(chunk):
                yield f"{name}{number}", conversation_of(row)


def conversation_of(row: Row | BadRow) -> Given | CodecError:
    """The conversation of a row, or why it has none."""
    if isinstance(row, BadRow):
        return CodecError(f"{row.reason} [{row.code}]")
    if "messages" not in row:
        near = [key for key in row if nearest(key, ("messages",))]
        return CodecError("the row has no messages" + (f"; it has {near[0]!r}" if near else ""))
    try:
        messages, tools, options = (_plain(row.get(key), key) for key in ("messages", "tools", "options"))
    except ValueError as error:
        return CodecError(str(error))
    if not isinstance(messages, list):
        return CodecError(f"messages must be a list, not {_kind(messages)}")
    if not isinstance(tools, list | None):
        return CodecError(f"tools must be a list, not {_kind(tools)}")
    if not isinstance(options, dict | None):
        return CodecError(f"options must be an object, not {_kind(options)}")
    return Given(messages, tools, options or {})


def _plain(value: Any, column: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value else None
    except RecursionError:
        raise ValueError(f"{column}: the JSON nests too deeply") from None
    except ValueError as error:
        raise ValueError(f"{column}: invalid JSON: {error}") from None


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")
