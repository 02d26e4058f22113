"""The command line: `chatcodec formats`, `render`, `parse`, `parse-prompt`, and the commands of `commands/`.

Rules of this module: for a pipe JSON (or the rendered text itself), for a terminal colours (`terminal.py`); `--pretty` and
`--json` choose.  What commands share is in `cli_io`.
"""

import gc
import re
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Any

import typer

from .cli_io import (
    File,
    FormatName,
    Options,
    Pretty,
    admitted,
    as_options,
    as_tools,
    complain,
    for_eyes,
    json_line,
    manners,
    members,
    naming,
    pieces,
    read_conversation,
    read_json,
    read_text,
    write,
)
from .commands import COMMANDS
from .errors import CodecError
from .events import Diagnosed, Event
from .formats import get_format, list_formats
from .reply import FinishReason, Policy

#: typer's usage errors; typer names only this heir of theirs.
USAGE_ERROR: type[Any] = typer.BadParameter.__bases__[0]

app = typer.Typer(
    name="chatcodec",
    help="The codec between structured chat and the text that language models read and write.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command(epilog="Example: chatcodec formats --json")
@manners()
def formats(pretty: Pretty = None) -> None:
    """List the formats and their options."""
    known = [get_format(name) for name in list_formats()]
    if for_eyes(pretty):
        from . import terminal  # here and below: rich is slow to import, and a pipe does without

        write(terminal.show_formats(known))
    else:
        write(json_line([{"name": each.name, "title": each.title, "options": each.options} for each in known]))


@app.command(epilog="Example: chatcodec render qwen3_5 chat.json --option add_generation_prompt=true")
@manners()
def render(format: FormatName, file: File = "-", option: Options = None, pretty: Pretty = None) -> None:
    """Render a conversation to the prompt text.

    The conversation is JSON: a list of messages, or an object with `messages` and, if need be, `tools` and `options`.
    The options of the command come before those of the file. A pipe gets exactly the text; --json adds spans and losses.
    """
    codec = get_format(format)
    messages, tools, options = read_conversation(file)
    rendered = codec.render(messages, tools=tools, **admitted(options | as_options(option), codec))
    if for_eyes(pretty):
        from . import terminal

        write(terminal.show_rendered(rendered))
    elif pretty is None:
        write(rendered.text)
    else:
        spans, losses = ([each._asdict() for each in some] for some in (rendered.spans, rendered.losses))
        write(json_line({"text": rendered.text, "spans": spans, "generation_spans": rendered.generation_spans, "losses": losses}))


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
    known = None if tools is None else as_tools(read_json(tools), naming(tools))
    before = None if prompt is None else read_text(prompt)
    options = admitted(as_options(option), codec)
    if stream:
        live = codec.stream(tools=known, prompt=before, policy=policy, infer_types=infer_types, **options)
        for piece in pieces(file):
            _write_events(live.feed(piece), pretty)
        _write_events(live.close(finish_reason), pretty)
        reply = live.reply
    else:
        text = read_text(file)
        reply = codec.parse(
            text, tools=known, prompt=before, finish_reason=finish_reason, policy=policy, infer_types=infer_types, **options
        )
        if for_eyes(pretty):
            from . import terminal

            write(terminal.show_reply(text, reply))
        else:
            diagnostics = [diagnostic._asdict() for diagnostic in reply.diagnostics]
            write(json_line(members(reply) | {"message": reply.message.model_dump(), "diagnostics": diagnostics}))
    if any(diagnostic.severity == "error" for diagnostic in reply.diagnostics):
        raise typer.Exit(1)


@app.command(epilog="Example: chatcodec parse-prompt qwen3_5 prompt.txt | chatcodec render qwen3_5")
@manners()
def parse_prompt(format: FormatName, file: File = "-", pretty: Pretty = None) -> None:
    """Parse a whole prompt back to its messages, tools and options.

    The JSON is what `chatcodec render` takes, and renders to the same text.
    """
    codec = get_format(format)
    text = read_text(file)
    conversation = codec.parse_prompt(text)
    if for_eyes(pretty):
        from . import terminal

        rendered = codec.render(conversation.messages, tools=conversation.tools, **conversation.options)
        write(terminal.show_rendered(rendered))
        if rendered.text != text:
            write(terminal.show_difference(text, rendered.text))
    else:
        write(json_line(conversation.model_dump()))


for command in COMMANDS:
    import_module(f".commands.{command}", __package__).register(app)


def main() -> None:
    """The entry point: `app`, with usage errors as one line too."""
    gc.freeze()  # what is imported stays to the end, and no search for cycles need look through it
    if sys.stdout is None:
        complain("standard output: it is closed")
        sys.exit(2)
    try:
        code = app(prog_name="chatcodec", standalone_mode=False)
    except USAGE_ERROR as error:
        code = error.exit_code
        if message := " ".join(error.format_message().split()):  # without arguments typer has shown the help and says no more
            complain(f"{message} (see {error.ctx.command_path if error.ctx else 'chatcodec'} --help)")
    except typer.Abort:
        code = 130
    gc.freeze()  # as Python ends, it would look through all that is left: a tenth of what a command takes
    sys.exit(code)


def _write_events(events: Iterable[Event], pretty: bool | None) -> None:
    lines = []
    for event in events:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).lower()
        values = event.diagnostic._asdict() if isinstance(event, Diagnosed) else members(event)
        lines.append(json_line({"event": name, **values}))
    if lines and for_eyes(pretty):
        from . import terminal

        lines = list(map(terminal.show_event, lines))
    write("".join(lines))
