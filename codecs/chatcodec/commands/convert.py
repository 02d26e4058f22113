"""The command `chatcodec convert`: data sets from one shape to another.

Rules of this module:

* standard output is for rows alone; progress (on a terminal) and the summary go to stderr;
* what the library does is done there; here are only its options, what is shown, and exit codes.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..cli_io import Options, admitted, as_options, complain, json_line, manners
from ..errors import CodecError, nearest
from ..formats import get_format, list_formats

if TYPE_CHECKING:
    from ..convert import Columns
    from ..data.pipeline import Progress
    from ..data.tally import Tally

EXAMPLE = "Example: chatcodec convert chats.jsonl.gz train.parquet --from openai --to qwen3_5 --jobs 8 --report report.json"


def register(app: typer.Typer) -> None:
    """Add the command to an app."""
    app.command(epilog=EXAMPLE)(manners()(convert))


def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="A file, a directory of files, or `-` for JSON Lines on standard input.")],
    target: Annotated[
        str, typer.Argument(metavar="OUT", help="A file; a directory (ends with `/`), which gets a file for each of IN; or `-`.")
    ],
    from_: Annotated[str, typer.Option("--from", metavar="SHAPE", help="openai, sharegpt, hermes, or a format.")],
    to: Annotated[str, typer.Option("--to", metavar="SHAPE", help="openai, sharegpt, hermes, or a format.")],
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", metavar="N", min=1, help="How many processes convert: one, or on Ray as many as there is room for."),
    ] = None,
    on_loss: Annotated[
        Literal["keep", "reject", "fail"],
        typer.Option(help="A row that loses something: write it, leave it out, or stop there and write nothing."),
    ] = "keep",
    rejects: Annotated[str | None, typer.Option(metavar="FILE", help="Write rows that are left out there, as JSON Lines.")] = None,
    report: Annotated[str | None, typer.Option(metavar="FILE", help="Write the counts and the first places there, as JSON.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an interrupted run of the same conversion stopped.")] = False,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", "-c", metavar="NAME=COLUMN", help="Where the rows keep messages, tools, text, …; repeatable."),
    ] = None,
    option: Options = None,
    engine: Annotated[Literal["local", "ray"], typer.Option(help="Convert on this machine, or on a Ray cluster.")] = "local",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.")] = False,
) -> None:
    """Convert a data set from one shape to another.

    JSON Lines (.jsonl, .jsonl.gz, .jsonl.zst), Parquet and Arrow are read and written, a directory in the order of names.
    Nothing stands under the name OUT before all of it is written; until then OUT.partial and OUT.checkpoint keep what is done.

    Exit codes: 0, every row was converted (with --on-loss keep some may have lost something: see the summary); 1, rows were
    refused, or left out by --on-loss reject, or --on-loss fail stopped at a loss; 2, bad input or usage, or the output could
    not be written; 130, interrupted: --resume goes on.
    """
    from ..convert import plan
    from ..data.pipeline import LossError

    options = as_options(option)
    if to in list_formats():
        options = admitted(options, get_format(to))
    planned = plan(from_, to, columns=_columns(columns), options=options)
    run: Any
    processes = jobs if engine == "ray" else jobs or 1
    if engine == "ray":
        from ..integrations.ray import convert as run
    else:
        from ..data.pipeline import convert as run
    if report is not None and not Path(report).absolute().parent.is_dir():
        raise CodecError(f"--report {report!r}: there is no such directory")
    write_report = partial(_write_report, report, {"from": from_, "to": to, "input": source, "output": target, "on_loss": on_loss})
    start = monotonic()
    try:
        with _progress(quiet) as progress:
            tally = run(source, target, planned, jobs=processes, on_loss=on_loss, rejects=rejects, resume=resume, progress=progress)
    except LossError as error:
        write_report(error.tally)
        complain(f"{error}; nothing was written")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        complain("interrupted" + ("; --resume goes on from there" if Path(f"{target.rstrip('/')}.checkpoint").exists() else ""))
        raise typer.Exit(130) from None
    except BrokenPipeError:
        _hush()
        raise typer.Exit(141) from None
    write_report(tally)
    if not quiet:
        _summarise(tally, monotonic() - start)
    if tally.refused or tally.rejected:
        raise typer.Exit(1)


def _columns(given: list[str] | None) -> "Columns":
    from ..convert import Columns

    known = [field.name for field in fields(Columns)]
    named = {}
    for each in given or ():
        name, equals, column = each.partition("=")
        if not equals or not column:
            raise CodecError(f"--columns {each!r}: give it as NAME=COLUMN")
        if name not in known:
            raise CodecError(f"--columns {each!r}: unknown name {name!r}{nearest(name, known)}; there are {', '.join(known)}")
        named[name] = column
    return Columns(**named)


def _write_report(report: str | None, about: Mapping[str, str], tally: "Tally") -> None:
    if report is not None:
        from ..data.checkpoint import write_whole, writing
        from ..data.tally import as_json

        with writing(report):
            write_whole(Path(report), json_line({**about, **as_json(tally)}).encode())


def _hush() -> None:
    """Nobody reads standard output: keep Python from trying once more as it ends."""
    import os

    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# ------------------------------------------------------------------------------------------------------------ what is shown


@contextmanager
def _progress(quiet: bool) -> Iterator["Progress | None"]:
    """A bar on a terminal: rows, rate, time left."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    shown = Progress(
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[rows]:,} rows, {task.fields[rate]:,.0f} a second"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        auto_refresh=False,  # a thread of rich's own would be in the way of forks
        transient=True,
    )
    start = last = monotonic()
    first: int | None = None
    task = shown.add_task("", total=None, rows=0, rate=0.0)

    def update(rows: int, done: int, total: int | None) -> None:
        nonlocal last, first
        now = monotonic()
        if first is None:  # a run that goes on does not count the rows of the one before
            first = rows
        if now - last >= 0.1:
            last = now
            shown.update(task, completed=done, total=total, rows=rows, rate=(rows - first) / (now - start), refresh=True)

    with shown:
        yield update


def _summarise(tally: "Tally", seconds: float) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ..data.tally import FINDINGS
    from ..terminal import visible

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    left_out = "".join(f", {count:,} {what}" for what in ("refused", "rejected") if (count := getattr(tally, what)))
    console.print(f"{tally.read:,} rows read, {tally.written:,} written{left_out} in {seconds:,.1f} s", soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("what", "code", "count", "rows", "first"):
        table.add_column(heading, justify="right" if heading in ("count", "rows") else "left", overflow="fold")
    styles = {"losses": ("lost", "yellow"), "repairs": ("repaired", "cyan"), "refusals": ("refused", "bold red")}
    for name in FINDINGS:
        word, style = styles[name]
        for code, found in sorted(getattr(tally, name).items(), key=lambda item: -item[1].count):
            place = visible(str(found.first[0]))
            first = Text(place if len(place) < 160 else place[:160] + "…")
            table.add_row(Text(word, style), Text(code), f"{found.count:,}", f"{found.rows:,}", first)
    if table.row_count:
        console.print(table)
