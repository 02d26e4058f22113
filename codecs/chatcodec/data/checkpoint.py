"""How far a conversion has come, kept beside its output so that it can go on after an interruption.

Rules of this module:

* a checkpoint speaks only of bytes that are safely on the disk: files are synchronised before it is written;
* it is replaced in one step, so that there is always a whole one;
* it belongs to one conversion: to its shapes, options, input files (their sizes and times) and output.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import CodecError
from .files import shown
from .tables_out import Kinds
from .tally import Tally, as_json, from_json

VERSION = 1


@dataclass(slots=True)
class State:
    """Where a conversion stands: between two chunks.

    `shard` is the output file that is being written, of a directory of them; `file` its input file that is being read, and
    `chunks` how many of that one's chunks are done.  `staged` and `rejected` are the sizes of what is written of the shard
    and of the rejects.  `kinds` are the columns of a table so far, `tally` all counts so far.
    """

    shard: int = 0
    file: int = 0
    chunks: int = 0
    staged: int = 0
    rejected: int = 0
    kinds: Kinds = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)


_PLACE = ("shard", "file", "chunks", "staged", "rejected")


def save(path: Path, state: State, about: dict[str, Any]) -> None:
    """Write a checkpoint of the conversion that `about` describes.  Raises OSError."""
    place = {name: getattr(state, name) for name in _PLACE}
    kept = {"version": VERSION, "about": about, **place, "kinds": list(state.kinds.items()), "tally": as_json(state.tally)}
    write_whole(path, json.dumps(kept).encode())


def load(path: Path, about: dict[str, Any]) -> State | None:
    """The state of a checkpoint, or None if there is none.  Raises CodecError if it belongs to another conversion."""
    try:
        kept = json.loads(path.read_bytes())
        if kept["version"] != VERSION:
            raise CodecError(f"{shown(path)}: another version of chatcodec wrote this checkpoint; run without resuming")
        then = dict(kept["about"])
        place = {name: int(kept[name]) for name in _PLACE}
        state = State(**place, kinds=dict(kept["kinds"]), tally=from_json(kept["tally"]))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CodecError(f"{shown(path)}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CodecError(f"{shown(path)}: this is no checkpoint; run without resuming") from None
    now = json.loads(json.dumps(about))
    for name in now.keys() | then.keys():
        if now.get(name) != then.get(name):
            was, is_now = json.dumps(then.get(name)), json.dumps(now.get(name))
            detail = "" if len(was) + len(is_now) > 200 else f": {was} then, {is_now} now"
            raise CodecError(f"{shown(path)}: the checkpoint is of another conversion, {name} differs{detail}; run without resuming")
    return state


# ------------------------------------------------------------------------------------------------------------------ files


@contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Turn what goes wrong with a file that is written into one clear CodecError."""
    try:
        yield
    except OSError as error:
        raise CodecError(f"{shown(path)}: {error.strerror or error}") from None


def open_at(path: Path, size: int) -> int:
    """Open a file for writing behind its first `size` bytes, and drop all else.  Raises OSError; CodecError if it is shorter."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    try:
        if os.fstat(handle).st_size < size:
            raise CodecError(f"{shown(path)}: the file is shorter than its checkpoint says; run without resuming")
        os.ftruncate(handle, size)
        os.lseek(handle, size, os.SEEK_SET)
    except BaseException:
        os.close(handle)
        raise
    return handle


def write_all(handle: int, data: bytes) -> None:
    """Write all of it, in as many steps as the system takes.  Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def begin_saving(handle: int) -> None:
    """Have what is written go to the disk from now on, where the system can be told, so that in the end little is left to wait for."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)


def write_whole(path: Path, data: bytes) -> None:
    """Write a small file so that it is there whole or not at all.  Raises OSError."""
    temporary = path.with_name(path.name + ".new")
    try:
        handle = open_at(temporary, 0)
        try:
            write_all(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
        publish(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def publish(temporary: Path, final: Path) -> None:
    """Give a finished file or directory its name, and make the name last.  Raises OSError."""
    temporary.replace(final)
    with suppress(OSError):  # not every system can synchronise a directory
        handle = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
