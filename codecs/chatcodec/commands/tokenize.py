"""`chatcodec tokenize`: a data set of conversations to token ids and labels for training.

Rules of this module: the work is done in `tokenizing`; here are only the options and what is shown.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..cli_io import Options, Pretty, admitted, as_options, for_eyes, json_line, manners, members, write
from ..formats import get_format

if TYPE_CHECKING:
    from ..tokens.tokenizing import Counts

EXAMPLE = "Example: chatcodec tokenize chats.jsonl train.parquet --format qwen3_5 --tokenizer tokenizer.json --max-length 4096"
BAR = 40  #: characters of the longest bar


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(name="tokenize", epilog=EXAMPLE)(command)


@manners()
def command(
    source: Annotated[str, typer.Argument(metavar="DATA", help="JSON Lines, Parquet or Arrow, a directory of them, or `-`.")],
    target: Annotated[str, typer.Argument(metavar="OUT", help="The file to write, .parquet or .arrow.")],
    format: Annotated[str, typer.Option("--format", "-f", metavar="FORMAT", help="The format that the model knows.")],
    tokenizer: Annotated[str, typer.Option(metavar="FILE", help="The model's tokenizer.json, or the directory that holds it.")],
    which: Annotated[Literal["sampled", "template"], typer.Option(help="Train on what was sampled, or on generation blocks.")] = "sampled",
    last_turn: Annotated[bool, typer.Option("--last-turn", help="Train on the last turn only.")] = False,
    kind: Annotated[list[str] | None, typer.Option(metavar="KIND", help="Train on text of this kind only; repeatable.")] = None,
    max_length: Annotated[int | None, typer.Option(metavar="N", min=1, help="The most tokens that a row may have.")] = None,
    on_long: Annotated[Literal["drop", "truncate"], typer.Option(help="What becomes of a row that has more.")] = "drop",
    allow_missing: Annotated[bool, typer.Option("--allow-missing", help="Encode control tokens that are missing as text.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", metavar="N", min=1, help="How many processes work.")] = 1,
    option: Options = None,
    pretty: Pretty = None,
) -> None:
    """Tokenize a data set: `input_ids`, `assistant_mask`, `labels` (-100 for what is not trained on) and `length`.

    No text of a message can forge a control token. The exit code is 1 if rows were refused.
    """
    from ..tokens.tokenizing import Settings, tokenize

    options = admitted(as_options(option), get_format(format))
    kinds = None if kind is None else frozenset(kind)
    settings = Settings(format, tokenizer, which, last_turn, kinds, max_length, on_long, allow_missing, options)
    with _progress() as progress:
        counts = tokenize(source, target, settings, jobs=jobs, progress=progress)
    if for_eyes(pretty):
        write(_summary(counts, on_long))
    else:
        lengths = {str(length): count for length, count in sorted(counts.lengths.items())}
        write(json_line(members(counts) | {"lengths": lengths}))
    if counts.refused:
        raise typer.Exit(1)


@contextmanager
def _progress() -> Iterator[Any]:
    """A line on stderr that tells how far it is, if that is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with console.status("tokenizing") as status:
        yield lambda counts: status.update(f"tokenizing: {counts.rows:,} rows, {counts.tokens:,} tokens")


def _summary(counts: "Counts", on_long: str) -> str:
    from ..terminal import visible

    share = f" ({counts.trained / counts.tokens:.1%})" if counts.tokens else ""
    dropped = "dropped" if on_long == "drop" else f"truncated, {counts.cut_tokens:,} tokens cut off"
    lines = [
        f"rows     {counts.rows:,} read, {counts.written:,} written, {counts.refused:,} refused",
        f"tokens   {counts.tokens:,}, {counts.trained:,} trained on{share}",
        f"too long {counts.too_long:,} rows" + (f" ({dropped})" if counts.too_long else ""),
    ]
    if counts.left_out:
        lines.append(f"left out {counts.left_out:,} turns that no longer render as they were sampled")
    if counts.untrained:
        lines.append(f"idle     {counts.untrained:,} rows have nothing to train on")
    lines += [f"refused  {visible(reason)}" for reason in counts.reasons]
    return "\n".join([*lines, "", *histogram(counts.lengths), ""])


def histogram(lengths: "dict[int, int]") -> list[str]:
    """Lengths as bars, a line for each power of two from the shortest to the longest."""
    if not lengths:
        return []
    bins: dict[int, int] = {}
    for length, count in lengths.items():
        bins[length.bit_length()] = bins.get(length.bit_length(), 0) + count
    most = max(bins.values())
    lines = []
    for size in range(min(bins), max(bins) + 1):
        count = bins.get(size, 0)
        low, high = (1 << size) >> 1, (1 << size) - 1
        bar = "█" * (-(-count * BAR // most))
        lines.append(f"{low:>9,} – {high:<9,} {bar} {count:,}" if count else f"{low:>9,} – {high:<9,}")
    return lines
