"""`chatcodec verify`: do a chat template and a format write the same text?

Rules of this module: the template is run in `templates`, the comparing is done in `verifying`; here are only the options and
what a terminal shows.
"""

from typing import Annotated, Any

import typer

from ..checks.templates import compile_template, read_templates
from ..checks.verifying import Parting, Verdict, verify, verify_row
from ..cli_io import FormatName, Options, Pretty, admitted, as_options, for_eyes, json_line, manners, write
from ..data.rows import read_conversations
from ..errors import CodecError
from ..formats import get_format

SHOWN = 6  #: differences that a terminal shows whole
BAD_ROWS = 10  #: rows that are no conversations and are told one by one
TOLD = {
    "text": "other text",
    "generation": "other generation spans",
    "format_refuses": "only the format refuses",
    "template_refuses": "only the template refuses",
}


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(name="verify", epilog="Example: chatcodec verify qwen3_5 --template chat_template.jinja conversations.jsonl")(command)


@manners()
def command(
    format: FormatName,
    data: Annotated[str | None, typer.Argument(metavar="[DATA]", help="Rows to compare besides the generated ones.")] = None,
    template: Annotated[
        str, typer.Option("--template", "-t", metavar="PATH", help="A .jinja file, a tokenizer_config.json or a model's directory.")
    ] = ...,  # type: ignore[assignment]  # typer's way to say that it is required
    template_name: Annotated[str | None, typer.Option(metavar="NAME", help="Of several templates, the one for all.")] = None,
    cases: Annotated[int, typer.Option(min=0, help="Generated conversations for every feature.")] = 30,
    seed: Annotated[int, typer.Option(help="Other seeds give other conversations.")] = 0,
    option: Options = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Compare no more than so many rows.")] = None,
    pretty: Pretty = None,
) -> None:
    """Compare a chat template with a format: where they part first, and in which features.

    The template runs as in transformers, in its sandbox. Conversations are generated for every feature; those of DATA are
    compared besides. The exit code is 1 if there is a difference.
    """
    codec = get_format(format)
    chosen = admitted(as_options(option), codec)
    codec.parse("", **chosen)  # refuses options that no conversation could be rendered with
    compiled = compile_template(read_templates(template), template_name)
    verdict = verify(codec, compiled, count=cases, seed=seed, options=chosen)
    for number, (place, given) in enumerate(read_conversations(data) if data is not None else (), 1):
        try:
            if isinstance(given, CodecError):
                raise given
            verify_row(verdict, codec, compiled, place, given.messages, given.tools, admitted(given.options, codec) | chosen)
        except CodecError as error:
            verdict.refused_rows += 1
            if len(verdict.bad_rows) < BAD_ROWS:
                verdict.bad_rows.append((place, str(error)))
        if number == limit:
            break
    write(_shown(verdict) if for_eyes(pretty) else json_line(verdict.as_dict()))
    if verdict.differ:
        raise typer.Exit(1)


def _shown(verdict: Verdict) -> str:
    from rich.table import Table
    from rich.text import Text

    from ..terminal import _printed, visible

    style = "bold red" if verdict.differ else "bold green"
    found = f"{verdict.differ:,} of {verdict.cases:,} differ" if verdict.differ else f"all {verdict.cases:,} the same"
    head = Text.assemble((verdict.format, "bold"), "  ", visible(verdict.template), "  ", (found, style))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("feature", "from", "cases", "refused", "differ", "first difference"):
        table.add_column(heading, justify="right" if heading in ("cases", "refused", "differ") else "left", overflow="fold")
    for (origin, feature), tally in verdict.features.items():
        told = "" if tally.first is None else f"{TOLD[tally.first.kind]}: {tally.first.place}".removesuffix(": ")
        mark = "red" if tally.differ else "green"
        counts: list[Any] = [f"{tally.cases:,}", f"{tally.refused:,}", Text(f"{tally.differ:,}", mark)]
        table.add_row(Text(visible(feature), mark), origin, *counts, Text(visible(told)))
    parts: list[Any] = []
    differing = [(feature, tally) for (_, feature), tally in verdict.features.items() if tally.first is not None]
    for feature, tally in differing[:SHOWN]:
        if tally.first is not None:
            parts += ["", Text(visible(f"{feature}, conversation {tally.place}"), "bold"), *_told(tally.first)]
    if len(differing) > SHOWN:
        parts += ["", f"and in {len(differing) - SHOWN} features more (--json has them all)"]
    for place, reason in verdict.bad_rows:
        parts.append(Text(visible(f"row {place}: {reason[:300]}"), "red"))
    if verdict.refused_rows > len(verdict.bad_rows):
        parts.append(Text(f"{verdict.refused_rows:,} rows in all are no conversations", "red"))
    return _printed(head, "", table, wrap=True) + _printed(*parts)


def _told(found: Parting) -> list[Any]:
    from rich.text import Text

    from ..terminal import visible

    where = f" at line {found.line}, column {found.column} ({found.place})" if found.place else ""
    return [
        Text(f"{TOLD[found.kind]}{where}", "yellow"),
        Text(f"  format    {visible(repr(found.ours))}"),
        Text(f"  template  {visible(repr(found.theirs))}"),
    ]
