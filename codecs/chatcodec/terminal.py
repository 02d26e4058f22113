"""What the command line shows on a terminal: the text itself in colours, and below it what is odd about it.

Rules of this module:

* the text is shown as it is, unwrapped, whatever the width of the terminal;
* no control character of it reaches the terminal: each is shown as its escape, newlines excepted;
* everything is returned as a string; the command line alone writes.
"""

import io
import json
import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from .errors import Diagnostic, Loss, locate
from .format import Format
from .reply import Reply
from .wire import Rendered

#: How each kind of text looks, in the order of the legend.  `odd`: no part of the message, and a diagnostic says why.
STYLES = {
    "control": "blue",
    "role": "bold blue",
    "system": "bright_cyan",
    "tools": "cyan",
    "option": "bright_blue",
    "user": "bold",
    "reasoning": "italic yellow",
    "content": "green",
    "call": "magenta",
    "argument_name": "bold magenta",
    "argument": "bright_magenta",
    "arguments": "bright_magenta",
    "result": "bright_yellow",
    "media": "bright_green",
    "odd": "bold red",
}
SEVERITIES = {"info": "cyan", "warning": "yellow", "error": "bold red"}
EVENTS = {
    "reasoning_delta": "reasoning",
    "content_delta": "content",
    "tool_call_start": "call",
    "arguments_delta": "argument",
    "tool_call_end": "call",
    "tool_call_dropped": "odd",
    "diagnosed": "odd",
}

_KINDS = tuple(STYLES)
# C0, DEL and C1, what some terminals take for a line's end, what turns the direction of writing, and halves of surrogate pairs.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str, keep: str = "") -> str:
    """The text with every character escaped that could move a terminal, but for those in `keep`."""
    return _UNSAFE.sub(lambda found: found[0] if found[0] in keep else found[0].encode("unicode_escape").decode(), text)


def show_formats(formats: Iterable[Format]) -> str:
    """A table of formats and their options with the defaults."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("format", "title", "option", "default", "description"):
        table.add_column(heading, no_wrap=heading not in ("default", "description"), overflow="fold")
    for listed in formats:
        label = (Text(listed.name, "bold green"), Text(listed.title))
        for name, option in listed.options.items() or [("", None)]:
            default = "" if option is None else json.dumps(option.default, ensure_ascii=False, default=str)
            table.add_row(*label, Text(name, "magenta"), Text(default), Text(option.description if option else ""))
            label = (Text(), Text())
    return _printed(table, wrap=True)


def show_rendered(rendered: Rendered) -> str:
    """A prompt in colours, and its losses."""
    spans = [(span.start, span.end, "control" if span.control else span.kind) for span in rendered.spans]
    return _printed(*_painted(rendered.text, spans), *(_loss(loss) for loss in rendered.losses))


def show_reply(text: str, reply: Reply) -> str:
    """A completion in colours, and its diagnostics."""
    odd = [(*diagnostic.span, "odd") for diagnostic in reply.diagnostics if diagnostic.severity != "info"]
    parts = [(*segment.span, segment.kind) for segment in reply.segments]  # over the odd ones: what is in the message is in it
    return _printed(*_painted(text, [*odd, *parts]), *(_diagnostic(diagnostic, text) for diagnostic in reply.diagnostics))


def show_difference(text: str, again: str) -> str:
    """Where a prompt and what its conversation renders to part ways."""
    shorter = min(len(text), len(again))
    position = next((index for index in range(shorter) if text[index] != again[index]), shorter)
    return _printed(_noted("warning", "the conversation renders to another text", text, position))


def show_event(line: str) -> str:
    """One event of a stream, a line of JSON, in the colour of what it is about."""
    return _printed(Text(visible(line.rstrip("\n")), STYLES[EVENTS[json.loads(line)["event"]]]))


def _painted(text: str, spans: Iterable[tuple[int, int, str]]) -> Sequence[Text]:
    """A legend, and the text in the colours of its spans; later spans lie over earlier ones, and the rest is control."""
    paint = bytearray(len(text))  # one kind a character; the first is control
    for first, last, name in spans:
        paint[first:last] = bytes([_KINDS.index(name)]) * (last - first)
    painted, start = Text(), 0
    for kind, run in groupby(paint):
        end = start + sum(1 for _ in run)
        painted.append(visible(text[start:end], keep="\n"), STYLES[_KINDS[kind]])
        start = end
    if text.endswith("\n"):
        painted.right_crop()
    legend = Text(" ").join(Text(_KINDS[kind], STYLES[_KINDS[kind]]) for kind in sorted(set(paint)))
    return legend, painted


def _diagnostic(diagnostic: Diagnostic, text: str) -> Text:
    detail = f" ({visible(diagnostic.detail)})" if diagnostic.detail else ""
    return _noted(diagnostic.severity, diagnostic.code + detail, text, diagnostic.span[0])


def _noted(severity: str, note: str, text: str, position: int) -> Text:
    line, column, shown = locate(text, position)
    source, caret = shown.split("\n")
    under = " " * cell_len(source[: len(caret) - 1])  # wide characters take two cells
    style = SEVERITIES[severity]
    return Text.assemble((f"{severity}:", style), f" {note} at {line}:{column}\n{source}\n{under}", ("^", style))


def _loss(loss: Loss) -> Text:
    return Text.assemble(("loss:", SEVERITIES["warning"]), f" {visible(str(loss))}")


def _printed(*parts: RenderableType, wrap: bool = False) -> str:
    """What rich prints for a terminal, a line break after each part; colours follow `TERM` and `NO_COLOR`."""
    console = Console(file=io.StringIO(), force_terminal=True, legacy_windows=False, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        for part in parts:
            console.print(part, soft_wrap=not wrap)
    return captured.get()
