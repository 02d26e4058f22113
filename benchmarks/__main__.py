"""`python -m benchmarks`: measure everything in one run and print one table."""

import argparse
import json
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import chatcodec

from . import converting, hostile, parsing, peers, rendering, serving, starting, tokens
from .table import Row, header

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = ROOT.parent / "shared" / "oracle" / "templates"
CORPUS = ROOT.parent / "shared" / "corpus" / "bfcl.jsonl.gz"
SECONDS, QUICK_SECONDS = 1.0, 0.1  #: for a race


def main() -> None:
    """Parse the command line, measure, print."""
    options = _options()
    chosen = [row for row in rows(options) if options.only.lower() in f"{row.format} {row.name}".lower()]
    if not chosen:
        sys.exit(f"python -m benchmarks: no row's format and name hold {options.only!r}")
    print("(n.nnx): chatcodec's time divided by the other's; under 1, chatcodec is faster\n")
    print(header(), flush=True)
    measured = []
    for row in chosen:
        measured.append(row.measure(QUICK_SECONDS if options.quick else SECONDS))
        print(measured[-1].line(), flush=True)
    print("\n" + "\n".join((*peers.NOTES, *parsing.NOTES, *serving.NOTES, *rendering.NOTES, *tokens.NOTES, "versions: " + _versions())))
    missed = [f"{figures.row.format} {figures.row.name}".strip() for figures in measured if not all(figures.met().values())]
    print(f"goals missed: {'; '.join(missed) or 'none'}")
    if options.json:
        about = {"python": platform.python_version(), "machine": platform.machine(), "versions": peers.versions()}
        report = about | {"rows": [figures.as_json() for figures in measured]}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """Every row there is."""
    formats = [chatcodec.get_format(name) for name in chatcodec.list_formats()]
    yield from starting.import_rows(options.quick)
    for fmt in formats:
        yield from starting.rows(fmt, options.quick)
        yield from parsing.rows(fmt, options.quick)
        yield from serving.rows(fmt, options.quick)
        yield from rendering.rows(fmt, options.templates, options.corpus, options.quick)
        yield from tokens.rows(fmt)
        yield from converting.rows(fmt, options.corpus, options.quick)
        yield from hostile.rows(fmt, options.quick)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--quick", action="store_true", help="fewer repeats and smaller hostile texts; figures are rough")
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="only rows whose format and name hold this")
    parser.add_argument("--templates", type=Path, metavar="DIR", help="where the chat templates are, as FORMAT.jinja")
    parser.add_argument("--corpus", type=Path, metavar="FILE", help="conversations as gzipped JSON Lines")
    options = parser.parse_args()
    if options.templates and not options.templates.is_dir():
        parser.error(f"--templates: {options.templates} is no directory")
    if options.corpus and not options.corpus.is_file():
        parser.error(f"--corpus: {options.corpus} is no file")
    options.templates = options.templates or (TEMPLATES if TEMPLATES.is_dir() else None)
    options.corpus = options.corpus or (CORPUS if CORPUS.is_file() else None)
    return options


def _versions() -> str:
    found = {"python": platform.python_version(), **peers.versions()}
    return ", ".join(f"{name} {number or '-'}" for name, number in found.items())


if __name__ == "__main__":
    main()
