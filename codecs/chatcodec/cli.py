"""The command line: `chatcodec formats`, `render`, `parse` and `parse-prompt`.

Rules of this module:

* bytes are read and decoded here and written as UTF-8, so that newlines and all else survive exactly;
* for a pipe JSON (or the rendered text itself), for a terminal colours (`terminal.py`); `--pretty` and `--json` choose;
* exit codes: 0 fine, 1 diagnostics of severity error, 2 bad input or usage, 130 interrupted, 141 the reader of a pipe went away;
* whatever is wrong is one clear line on stderr that begins with `chatcodec: ` (a ParseError shows its place below it).
"""

import codecs
import json
import os
import re
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
from .events import Diagnosed, Event
from .format import Format
from .formats import get_format, list_formats
from .reply import FinishReason, Policy

CHUNK = 1 << 16
CONVERSATION_KEYS = frozenset(("messages", "tools", "options"))
#: What the library's methods take besides options; as the name of an option, Python itself would refuse it.
PARAMETERS = frozenset("self messages text tools prompt finish_reason policy infer_types".split())
#: typer's usage errors; typer names only this heir of theirs.
USAGE_ERROR: type[Any] = typer.BadParameter.__bases__[0]
DEL_AND_C1 = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}
JSON_KINDS = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}

app = typer.Typer(
    name="chatcodec",
    help="The codec between structured chat and the text that language models read and write.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

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
        _complain(str(error))
        raise typer.Exit(2) from None
    except RecursionError:
        _complain("the input nests too deeply")
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command(epilog="Example: chatcodec formats --json")
@manners()
def formats(pretty: Pretty = None) -> None:
    """List the formats and their options."""
    known = [get_format(name) for name in list_formats()]
    if _for_eyes(pretty):
        from . import terminal  # here and below: rich is slow to import, and a pipe does without

        _write(terminal.show_formats(known))
    else:
        _write(_line([{"name": each.name, "title": each.title, "options": each.options} for each in known]))


@app.command(epilog="Example: chatcodec render qwen3_5 chat.json --option add_generation_prompt=true")
@manners()
def render(format: FormatName, file: File = "-", option: Options = None, pretty: Pretty = None) -> None:
    """Render a conversation to the prompt text.

    The conversation is JSON: a list of messages, or an object with `messages` and, if need be, `tools` and `options`.
    The options of the command come before those of the file. A pipe gets exactly the text; --json adds spans and losses.
    """
    codec = get_format(format)
    messages, tools, options = _conversation(file)
    rendered = codec.render(messages, tools=tools, **_admitted(options | _options(option), codec))
    if _for_eyes(pretty):
        from . import terminal

        _write(terminal.show_rendered(rendered))
    elif pretty is None:
        _write(rendered.text)
    else:
        spans, losses = ([each._asdict() for each in some] for some in (rendered.spans, rendered.losses))
        _write(_line({"text": rendered.text, "spans": spans, "generation_spans": rendered.generation_spans, "losses": losses}))


@app.command(epilog="Example: chatcodec parse qwen3_5 completion.txt --tools tools.json --finish-reason stop")
@manners()
def parse(
    format: FormatName,
    file: File = "-",
    tools: Annotated[str | None, typer.Option(metavar="FILE", help="The tools that the model had, as a JSON list.")] = None,
    prompt: Annotated[str | None, typer.Option(metavar="FILE", help="The prompt text that the completion continues.")] = None,
    policy: Annotated[Policy, typer.Option(help="`strict` refuses what is not as it should be; `raw` repairs nothing.")] = "recover",
    finish_reason: Annotated[FinishReason | None, typer.Option(help="Why the model stopped, where it is known.")] = None,
    infer_types: Annotated[bool, typer.Option("--infer-types", help="Without tools, guess the types of arguments.")] = False,
    option: Options = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print the events as they come, a JSON object a line.")] = False,
    pretty: Pretty = None,
) -> None:
    """Parse a completion: reasoning, content, tool calls and diagnostics.

    The exit code is 1 if a diagnostic is an error.
    """
    codec = get_format(format)
    if [file, tools, prompt].count("-") > 1:
        raise CodecError("standard input can be only one of FILE, --tools and --prompt")
    known = None if tools is None else _tools(_json(tools), _named(tools))
    before = None if prompt is None else _text(prompt)
    options = _admitted(_options(option), codec)
    if stream:
        live = codec.stream(tools=known, prompt=before, policy=policy, infer_types=infer_types, **options)
        for piece in _pieces(file):
            _write_events(live.feed(piece), pretty)
        _write_events(live.close(finish_reason), pretty)
        reply = live.reply
    else:
        text = _text(file)
        reply = codec.parse(
            text, tools=known, prompt=before, finish_reason=finish_reason, policy=policy, infer_types=infer_types, **options
        )
        if _for_eyes(pretty):
            from . import terminal

            _write(terminal.show_reply(text, reply))
        else:
            diagnostics = [diagnostic._asdict() for diagnostic in reply.diagnostics]
            _write(_line(_members(reply) | {"message": reply.message.model_dump(), "diagnostics": diagnostics}))
    if any(diagnostic.severity == "error" for diagnostic in reply.diagnostics):
        raise typer.Exit(1)


@app.command(epilog="Example: chatcodec parse-prompt qwen3_5 prompt.txt | chatcodec render qwen3_5")
@manners()
def parse_prompt(format: FormatName, file: File = "-", pretty: Pretty = None) -> None:
    """Parse a whole prompt back to its messages, tools and options.

    The JSON is what `chatcodec render` takes, and renders to the same text.
    """
    codec = get_format(format)
    text = _text(file)
    conversation = codec.parse_prompt(text)
    if _for_eyes(pretty):
        from . import terminal

        rendered = codec.render(conversation.messages, tools=conversation.tools, **conversation.options)
        _write(terminal.show_rendered(rendered))
        if rendered.text != text:
            _write(terminal.show_difference(text, rendered.text))
    else:
        _write(_line(conversation.model_dump()))


def main() -> None:
    """The entry point: `app`, with usage errors as one line too."""
    if sys.stdout is None:
        _complain("standard output: it is closed")
        sys.exit(2)
    try:
        code = app(prog_name="chatcodec", standalone_mode=False)
    except USAGE_ERROR as error:
        code = error.exit_code
        if message := " ".join(error.format_message().split()):  # without arguments typer has shown the help and says no more
            _complain(f"{message} (see {error.ctx.command_path if error.ctx else 'chatcodec'} --help)")
    except typer.Abort:
        code = 130
    sys.exit(code)


# ---------------------------------------------------------------------------------------------------------------- input


def _named(file: str) -> str:
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
        raise CodecError(f"{_named(file)}: {error.strerror or error}") from None


def _pieces(file: str) -> Iterator[str]:
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
            raise CodecError(f"{_named(file)}: invalid UTF-8 at byte {done + error.start}: {error.reason}") from None
        done += waiting + len(chunk) - len(decoder.getstate()[0])
        yield piece


def _text(file: str) -> str:
    return "".join(_pieces(file))


def _json(file: str) -> Any:
    try:
        return json.loads(_text(file).removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}"))  # the mark that some editors put first
    except json.JSONDecodeError as error:
        raise CodecError(f"{_named(file)}: invalid JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise CodecError(f"{_named(file)}: the JSON nests too deeply") from None
    except ValueError:  # the one other thing that json refuses
        raise CodecError(f"{_named(file)}: an integer of more than {sys.get_int_max_str_digits()} digits") from None


def _kind(value: Any) -> str:
    return JSON_KINDS.get(type(value), "a number")


def _conversation(file: str) -> tuple[list[Any], list[Any] | None, dict[str, Any]]:
    """The messages, tools and options of a JSON file; what the messages hold is the format's to judge."""
    given, named = _json(file), _named(file)
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
    return messages, None if tools is None else _tools(tools, named), options or {}


def _tools(given: Any, named: str) -> list[Any]:
    if not isinstance(given, list):
        raise CodecError(f"{named}: tools must be a list, not {_kind(given)}")
    for index, tool in enumerate(given):
        if not isinstance(tool, dict):
            raise CodecError(f"{named}: tools[{index}] must be an object, not {_kind(tool)}")
    return given


def _options(given: Iterable[str] | None) -> dict[str, Any]:
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


def _admitted(options: Mapping[str, Any], codec: Format) -> dict[str, Any]:
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


def _for_eyes(pretty: bool | None) -> bool:
    return sys.stdout.isatty() if pretty is None else pretty


def _write(text: str) -> None:
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


def _line(value: Any) -> str:
    """The value as one line of JSON that any terminal and any UTF-8 can take."""
    text = json.dumps(value, ensure_ascii=False, default=_plain).translate(DEL_AND_C1)
    return text.encode("utf-8", "backslashreplace").decode() + "\n"  # half a surrogate pair is written as JSON escapes it


def _plain(value: Any) -> Any:
    """What JSON itself does not know: the options of a format with their types, days among the values, the parts of a reply."""
    if isinstance(value, type):
        return "null" if value is type(None) else value.__name__
    return value.isoformat() if isinstance(value, date) else _members(value)


def _members(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _write_events(events: Iterable[Event], pretty: bool | None) -> None:
    lines = []
    for event in events:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).lower()
        values = event.diagnostic._asdict() if isinstance(event, Diagnosed) else _members(event)
        lines.append(_line({"event": name, **values}))
    if lines and _for_eyes(pretty):
        from . import terminal

        lines = [terminal.show_event(line) for line in lines]
    _write("".join(lines))


def _complain(message: str) -> None:
    from .terminal import visible

    typer.echo("chatcodec: " + visible(message, keep="\n"), err=True)
