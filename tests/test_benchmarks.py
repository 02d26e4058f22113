"""The benchmarks measure what they say: the scanners read what the library reads, and the command runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import fixtures, hostile
from benchmarks.scanner import SCANNERS

import chatcodec
from chatcodec.grammar import markers
from limits import at_most

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("turn", fixtures.TURNS)
@pytest.mark.parametrize("name", SCANNERS)
def test_scanner_reads_the_same_message(name: str, turn: str) -> None:
    fmt = chatcodec.get_format(name)
    text = fixtures.completion(fmt, fixtures.TURNS[turn], fixtures.TOOLS)
    message = fmt.parse(text, tools=fixtures.TOOLS).message
    assert SCANNERS[name](text, fixtures.TOOLS) == message
    given = fixtures.TURNS[turn]
    assert message.content == given["content"] or message.tool_calls  # some templates drop text beside calls
    assert [call.function.name for call in message.tool_calls] == [call["function"]["name"] for call in given.get("tool_calls", ())]


@pytest.mark.parametrize("name", chatcodec.list_formats())
def test_pieces_put_together_are_a_call(name: str) -> None:
    fmt = chatcodec.get_format(name)
    part = fixtures.pieces(fmt)
    assert part.opener and part.head.startswith(part.opener)
    message = fmt.parse(part.start + part.head + "x" + part.ending).message
    assert [call.function.arguments for call in message.tool_calls] == [{"zqa": "x"}]


@pytest.mark.parametrize("name", chatcodec.list_formats())
def test_one_name_twice_among_many_takes_linear_time(name: str) -> None:
    fmt = chatcodec.get_format(name)
    text = hostile.twice(fmt, 100_000)
    with at_most(20):
        reply = fmt.parse(text)
    assert len(reply.message.tool_calls[0].arguments) == 99_999
    assert [found.code for found in reply.diagnostics if found.severity != "info"] == ["duplicate_argument"]


MARKERS = [
    (name, marker)
    for name in chatcodec.list_formats()
    for marker in sorted({text for text in markers(name).values() if len(text) < 40 and text.startswith("<")})
]


@pytest.mark.parametrize(("name", "marker"), MARKERS)
def test_strings_that_never_close_take_linear_time(name: str, marker: str) -> None:
    """Call after call is cut off at the next marker, and each runs into the same string."""
    fmt = chatcodec.get_format(name)
    part = fixtures.pieces(fmt)
    for ending in ("", '" "'):
        text = f'{part.start}{part.head}{{"a":"' + f'{marker}\\"' * 10_000 + ending
        stream = fmt.stream()
        with at_most(20):
            for start in range(0, len(text), 1000):
                stream.feed(text[start : start + 1000])
            stream.close()
            reply = fmt.parse(text)
        assert (stream.reply.diagnostics, stream.reply.message) == (reply.diagnostics, reply.message)


def test_command_runs(tmp_path: Path) -> None:
    report = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", "import", "--json", str(report)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert "import chatcodec" in done.stdout
    assert [row["row"] for row in json.loads(report.read_text())["rows"]] == ["import chatcodec"]
