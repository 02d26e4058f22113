"""`chatcodec check`: does every conversation of a data set come back from its text?

Rules of this module: the counting is done in `checking`, the page in `page`; here are only the options and what a terminal
shows.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..checks.checking import OUTCOMES, UNEXPLAINED, Checked, Report, check
from ..cli_io import FormatName, Options, Pretty, admitted, as_options, for_eyes, json_line, manners, write
from ..data.rows import Given, read_conversations
from ..errors import CodecError
from ..format import Format
from ..formats import get_format

SHOWN = 10  #: rows of trouble that a terminal shows


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(name="check", epilog="Example: chatcodec check qwen3_5 conversations.jsonl --html report.html")(command)


@manners()
def command(
    format: FormatName,
    data: Annotated[str, typer.Argument(metavar="DATA", help="JSON Lines, Parquet or Arrow, a directory of them, or `-`.")],
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write the report as a page of HTML that needs nothing else.")] = None,
    option: Options = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Check no more than so many rows.")] = None,
    pretty: Pretty = None,
) -> None:
    """Render every conversation of a data set, read it back, and tell what does not come back.

    A row has `messages`, and if need be `tools` and `options`; the options of the command come before those of the row.
    The exit code is 1 if there is a difference that no loss names.
    """
    codec = get_format(format)
    chosen = as_options(option)
    codec.parse("", **admitted(chosen, codec))  # refuses options that no row could be rendered with
    report = _report(codec, data, chosen, limit)
    if html is not None:
        from ..checks.page import page

        try:
            Path(html).write_bytes(page(report, source=data).encode())
        except OSError as error:
            raise CodecError(f"{html!r}: {error.strerror or error}") from None
    write(_shown(report) if for_eyes(pretty) else json_line(report.as_dict()))
    if report.outcomes["unexplained"]:
        raise typer.Exit(1)


def _report(codec: Format, data: str, chosen: dict[str, Any], limit: int | None) -> Report:
    """Check the rows; on a terminal a line on stderr tells how far it is."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    report = Report(codec.name)
    columns = (SpinnerColumn(), TextColumn("checking"), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("checking", total=limit)
        for place, given in read_conversations(data):
            report.add(check_row(codec, given, chosen), place)
            progress.advance(task)
            if report.rows == limit:
                break
    return report


def check_row(codec: Format, given: Given | CodecError, chosen: dict[str, Any]) -> Checked:
    """What checking a row of a data set finds; one that is no conversation is refused."""
    if isinstance(given, CodecError):
        return Checked("refused", error=given)
    try:
        options = admitted(given.options | chosen, codec)
    except CodecError as error:
        return Checked("refused", error=error)
    return check(codec, given.messages, given.tools, **options)


def _shown(report: Report) -> str:
    from rich.table import Table
    from rich.text import Text

    from ..terminal import _printed, visible

    found = report.as_dict()
    head = Text.assemble((report.format, "bold"), f"  {report.rows:,} rows  ")
    styles = {"exact": "green", "lossy": "yellow", "unexplained": "bold red", "refused": "red"}
    for outcome in OUTCOMES:
        count = report.outcomes[outcome]
        head.append(f" {count:,} {outcome} ", styles[outcome] if count else "dim")
    turns = Text(f"append-only: {report.turns - report.rewritten:,} of {report.turns:,} assistant turns")
    if report.passed_over:
        turns.append(f" ({report.passed_over:,} not looked at)")
    parts: list[Any] = [head, turns]
    for title, counted in (
        ("unexplained", [each for each in found["differences"] if each["code"] == UNEXPLAINED]),
        ("loss", found["losses"]),
        ("refusal", found["refusals"]),
    ):
        if counted:
            table = Table(box=None, pad_edge=False, header_style="bold")
            table.add_column(title, overflow="fold")
            table.add_column("path", overflow="fold")
            table.add_column("count", justify="right")
            for each in counted:
                table.add_row(Text(each["code"]), Text(visible(each["path"])), f"{each['count']:,}")
            parts += ["", table]
    told: list[Any] = []
    for trouble in found["unexplained_rows"][:SHOWN]:
        for path, given, read, _ in (each.values() for each in trouble["differences"][:3]):
            told.append(Text(visible(f"row {trouble['row']}: {path}: {given[:200]} came back as {read[:200]}"), "red"))
    for trouble in found["refused_rows"][:SHOWN]:
        told.append(Text(visible(f"row {trouble['row']}: {trouble['error'][:300]}"), "red"))
    return _printed(*parts, wrap=True) + _printed(*told)
