"""What the commands of the command line share: options, reading and checking input, writing output.

Rules of this module:

* bytes are read and decoded here and written as UTF-8, so that newlines and all else survive exactly;
* whatever is wrong is one clear line on stderr that begins with `chatcodec: ` (a ParseError shows its place below it);
* exit codes: 0 fine, 1 what the command looks for was found wrong, 2 bad input or usage, 130 interrupted, 141 the reader of
  a pipe went away.
"""

import codecs
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from datetime import date, datetime
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from .errors import CodecError, nearest
from .format import Format

CHUNK = 1 << 16
CONVERSATION_KEYS = frozenset(("messages", "tools", "options"))
#: What the library's methods take besides options; as the name of an option, Python itself would refuse it.
PARAMETERS = frozenset("self messages text tools prompt finish_reason policy infer_types".split())
DEL_AND_C1 = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}
JSON_KINDS = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}

FormatName = Annotated[str, typer.Argument(metavar="FORMAT", help="A format; `chatcodec formats` lists them.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="The input; `-` or nothing is standard input.", show_default=False)]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="A template option, its value as JSON or else as text; repeatable."),
]
Pretty = Annotated[
    bool | None,
    typer.Option("--pretty/--json", help="Colours or JSON, whatever the output is.", show_default=False),
]


@contextmanager
def manners() -> Iterator[None]:
    """Turn what goes wrong in a command into its line on stderr and its exit code."""
    try:
        yield
    except CodecError as error:
        complain(str(error))
        raise typer.Exit(2) from None
    except RecursionError:
        complain("the input nests too deeply")
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


# ---------------------------------------------------------------------------------------------------------------- input


def naming(file: str) -> str:
    return "standard input" if file == "-" else repr(file)


def _chunks(file: str) -> Iterator[bytes]:
    """The bytes of a file, each piece as soon as it is there."""
    try:
        if file == "-" and sys.stdin is None:
            raise OSError("it is closed")
        with nullcontext(cast(BufferedReader, sys.stdin.buffer)) if file == "-" else Path(file).open("rb") as source:
            while chunk := source.read1(CHUNK):
                yield chunk
    except OSError as error:
        raise CodecError(f"{naming(file)}: {error.strerror or error}") from None


def pieces(file: str) -> Iterator[str]:
    """The text of a file, each piece as soon as it is there; a character that is cut waits for its rest."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    done = 0  # bytes decoded, those of a waiting character not among them
    chunks = _chunks(file)
    final = False
    while not final:
        chunk = next(chunks, b"")
        final = not chunk
        waiting = len(decoder.getstate()[0])
        try:
            piece = decoder.decode(chunk, final)
        except UnicodeDecodeError as error:
            raise CodecError(f"{naming(file)}: invalid UTF-8 at byte {done + error.start}: {error.reason}") from None
        done += waiting + len(chunk) - len(decoder.getstate()[0])
        yield piece


def read_text(file: str) -> str:
    return "".join(pieces(file))


def read_json(file: str) -> Any:
    try:
        return json.loads(read_text(file).removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}"))  # the mark that some editors put first
    except json.JSONDecodeError as error:
        raise CodecError(f"{naming(file)}: invalid JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise CodecError(f"{naming(file)}: the JSON nests too deeply") from None
    except ValueError:  # the one other thing that json refuses
        raise CodecError(f"{naming(file)}: an integer of more than {sys.get_int_max_str_digits()} digits") from None


def _kind(value: Any) -> str:
    return JSON_KINDS.get(type(value), "a number")


def read_conversation(file: str) -> tuple[list[Any], list[Any] | None, dict[str, Any]]:
    """The messages, tools and options of a JSON file; what the messages hold is the format's to judge."""
    given, named = read_json(file), naming(file)
    if isinstance(given, list):
        given = {"messages": given}
    if not isinstance(given, dict):
        raise CodecError(f"{named}: a conversation is a list of messages or an object with messages, not {_kind(given)}")
    for key in given.keys() - CONVERSATION_KEYS:  # other keys are a data set's own, unless they look misspelt
        if hint := nearest(key, CONVERSATION_KEYS - given.keys()):
            raise CodecError(f"{named}: unknown key {key!r}{hint}")
    if "messages" not in given:
        raise CodecError(f"{named}: the object has no messages")
    messages, tools, options = given["messages"], given.get("tools"), given.get("options")
    if not isinstance(messages, list):
        raise CodecError(f"{named}: messages must be a list, not {_kind(messages)}")
    if not isinstance(options, dict | None):
        raise CodecError(f"{named}: options must be an object, not {_kind(options)}")
    return messages, None if tools is None else as_tools(tools, named), options or {}


def as_tools(given: Any, named: str) -> list[Any]:
    if not isinstance(given, list):
        raise CodecError(f"{named}: tools must be a list, not {_kind(given)}")
    for index, tool in enumerate(given):
        if not isinstance(tool, dict):
            raise CodecError(f"{named}: tools[{index}] must be an object, not {_kind(tool)}")
    return given


def as_options(given: Iterable[str] | None) -> dict[str, Any]:
    """`NAME=VALUE`s as options, each value read as JSON where it is JSON."""
    options: dict[str, Any] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not equals:
            raise CodecError(f"--option {each!r}: give it as NAME=VALUE")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def admitted(options: Mapping[str, Any], codec: Format) -> dict[str, Any]:
    """The options as the library takes them: days out of their text, and none that Python itself would refuse."""
    admitted = dict(options)
    for name, value in options.items():
        known = codec.options.get(name)
        if known is None and name in PARAMETERS:
            raise CodecError(f"{codec.name}: unknown option {name!r}{nearest(name, codec.options)}")
        if known is not None and date in known.types and isinstance(value, str):
            try:
                admitted[name] = datetime.fromisoformat(value)
            except ValueError:
                raise CodecError(f"{codec.name}: {name} must be a day like 2026-03-14, not {value!r}") from None
    return admitted


# --------------------------------------------------------------------------------------------------------------- output


def for_eyes(pretty: bool | None) -> bool:
    return sys.stdout.isatty() if pretty is None else pretty


def write(text: str) -> None:
    try:
        data = memoryview(text.encode())
    except UnicodeEncodeError as error:
        raise CodecError(f"half a surrogate pair at character {error.start}, which UTF-8 cannot write; --json escapes it") from None
    try:
        while data:  # without a buffer (`python -u`) a pipe may take only a part
            data = data[sys.stdout.buffer.write(data) :]
        sys.stdout.buffer.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python tries once more as it ends, and complains
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(141) from None
        raise CodecError(f"standard output: {error.strerror}") from None


def json_line(value: Any) -> str:
    """The value as one line of JSON that any terminal and any UTF-8 can take."""
    text = json.dumps(value, ensure_ascii=False, default=_plain).translate(DEL_AND_C1)
    return text.encode("utf-8", "backslashreplace").decode() + "\n"  # half a surrogate pair is written as JSON escapes it


def _plain(value: Any) -> Any:
    """What JSON itself does not know: the options of a format with their types, days among the values, the parts of a reply."""
    if isinstance(value, type):
        return "null" if value is type(None) else value.__name__
    return value.isoformat() if isinstance(value, date) else members(value)


def members(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def complain(message: str) -> None:
    from .terminal import visible

    typer.echo("chatcodec: " + visible(message, keep="\n"), err=True)
