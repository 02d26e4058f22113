"""The command `convert`: what it writes, what it says, and its exit codes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

import chatcodec
from chatcodec.commands.convert import register
from chatcodec.convert import convert_row, plan
from chatcodec.data import pipeline
from chatcodec.data.pipeline import convert

CODECS = Path(__file__).parent.parent / "codecs"
FINE: dict[str, Any] = {"id": 1, "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello\x1b[31m"}]}
CALL = {"id": "an id of its own", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
LOSSY: dict[str, Any] = {
    "id": 2,
    "messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "", "tool_calls": [CALL]}],
}
BAD: dict[str, Any] = {"id": 3, "messages": [{"role": "nob\x1b[31mody", "content": "?"}]}


def _tells_apart(name: str) -> bool:
    """Whether a format writes the first of these rows whole, the second with a loss, and the third not at all."""
    fine, lossy, bad = (convert_row(row, plan("openai", name)) for row in (FINE, LOSSY, BAD))
    return not fine.losses and bool(lossy.losses) and bad.refusal is not None


NAME = next(filter(_tells_apart, chatcodec.list_formats()))
TO = plan("openai", NAME)

app = typer.Typer()
register(app)


@app.callback()
def _several() -> None:
    """With one command alone, typer would have no names for commands."""


def run(*arguments: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(app, ["convert", *arguments, "--from", "openai", "--to", NAME], input=stdin, env={"COLUMNS": "200"})


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Writes `in.jsonl` into the working directory."""
    monkeypatch.chdir(tmp_path)

    def write(*rows: Any) -> None:
        Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    return write


def written(name: str = "out.jsonl") -> list[Any]:
    return [json.loads(line) for line in Path(name).read_bytes().splitlines()]


def test_fine_rows_are_exit_code_0(files: Callable[..., None]) -> None:
    files(FINE, LOSSY)
    result = run("in.jsonl", "out.jsonl")
    assert (result.exit_code, result.stdout) == (0, "")
    assert written() == [convert_row(FINE, TO).row, convert_row(LOSSY, TO).row]
    assert "2 rows read, 2 written in" in result.stderr
    for loss in convert_row(LOSSY, TO).losses:
        assert loss.code in result.stderr
    assert run("in.jsonl", "out.jsonl", "--quiet").stderr == ""


def test_refused_rows_are_exit_code_1(files: Callable[..., None]) -> None:
    files(FINE, BAD, [])
    result = run("in.jsonl", "out.jsonl", "--rejects", "rejects.jsonl", "--report", "report.json")
    assert result.exit_code == 1
    assert written() == [convert_row(FINE, TO).row]
    assert [(each["row"], each["code"]) for each in written("rejects.jsonl")] == [(2, "unknown_role"), (3, "not_an_object")]
    assert written("rejects.jsonl")[0]["data"] == BAD
    report = json.loads(Path("report.json").read_bytes())
    assert report["rows"] == {"read": 3, "written": 1, "refused": 2, "rejected": 0, "lossy": 0, "repaired": 0}
    assert (report["from"], report["to"], report["input"], report["output"]) == ("openai", NAME, "in.jsonl", "out.jsonl")
    first = report["refusals"]["unknown_role"]["first"]
    assert [(place["file"], place["row"], place["path"]) for place in first] == [("in.jsonl", 2, "messages[0].role")]
    assert "3 rows read, 1 written, 2 refused in" in result.stderr
    assert "\x1b" not in result.stderr  # nothing of the data moves a terminal


def test_losses_that_are_not_wanted(files: Callable[..., None]) -> None:
    files(FINE, LOSSY, FINE)
    rejected = run("in.jsonl", "out.jsonl", "--on-loss", "reject", "--rejects", "rejects.jsonl")
    assert rejected.exit_code == 1
    assert len(written()) == 2
    assert [each["data"] for each in written("rejects.jsonl")] == [LOSSY]
    Path("out.jsonl").unlink()
    failed = run("in.jsonl", "out.jsonl", "--on-loss", "fail", "--report", "report.json")
    assert failed.exit_code == 1
    loss = convert_row(LOSSY, TO).losses[0]
    assert failed.stderr == f"chatcodec: in.jsonl: row 2 would lose something: {loss.code} at {loss.path}; nothing was written\n"
    assert json.loads(Path("report.json").read_bytes())["losses"][loss.code]["count"] >= 1
    assert not Path("out.jsonl").exists()


def test_pipes(files: Callable[..., None]) -> None:
    files(FINE, LOSSY)
    data = Path("in.jsonl").read_bytes()
    result = run("-", "-", stdin=data)
    assert result.exit_code == 0
    assert [json.loads(line) for line in result.stdout.splitlines()] == [convert_row(FINE, TO).row, convert_row(LOSSY, TO).row]
    assert run("-", "out.jsonl", stdin=data).exit_code == 0
    assert Path("out.jsonl").read_text() == result.stdout


def test_columns_and_options(files: Callable[..., None]) -> None:
    files({"chat": FINE["messages"]})
    result = run("in.jsonl", "out.jsonl", "-c", "messages=chat", "--columns", "text=prompt", "-o", "add_generation_prompt=true")
    assert result.exit_code == 0, result.stderr
    fmt = chatcodec.get_format(NAME)
    assert written() == [{"prompt": fmt.render(FINE["messages"], add_generation_prompt=True).text}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.jsonl", "out.jsonl"], "'none.jsonl': no such file"),
        (["in.jsonl", "out.txt"], "the name does not say"),
        (["in.jsonl", "no/out.jsonl"], "there is no directory"),
        (["in.jsonl", "out.jsonl", "--columns", "txt=a"], "did you mean 'text'?"),
        (["in.jsonl", "out.jsonl", "--columns", "text"], "give it as NAME=COLUMN"),
        (["in.jsonl", "out.jsonl", "--option", "add_generation_promt=1"], "did you mean 'add_generation_prompt'?"),
        (["in.jsonl", "out.jsonl", "--report", "no/report.json"], "there is no such directory"),
        (["in.jsonl", "in.jsonl"], "must be different files"),
        (["in.jsonl", "out.jsonl", "--to", "opnai"], "did you mean 'openai'?"),
        (["in.jsonl", "-", "--resume"], "cannot be resumed"),
        (["-", "out.jsonl", "--engine", "ray"], "standard input cannot be spread"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(arguments: list[str], message: str, files: Callable[..., None]) -> None:
    files(FINE)
    command = ["convert", *arguments, "--from", "openai", *([] if "--to" in arguments else ["--to", NAME])]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("chatcodec: ") and result.stderr.count("\n") == 1
    assert message in result.stderr
    assert [path.name for path in Path().iterdir()] == ["in.jsonl"]


def test_an_interrupt_is_exit_code_130_and_can_be_resumed(files: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    files(*[FINE] * 5000)

    def interrupted(*arguments: Any, **options: Any) -> Any:
        def progress(*_: object) -> None:
            raise KeyboardInterrupt

        return convert(*arguments, **options | {"progress": progress})

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "convert", interrupted)
        result = run("in.jsonl", "out.jsonl")
    assert (result.exit_code, result.stderr) == (130, "chatcodec: interrupted; --resume goes on from there\n")
    assert {path.name for path in Path().iterdir()} == {"in.jsonl", "out.jsonl.partial", "out.jsonl.checkpoint"}
    assert run("in.jsonl", "out.jsonl", "--resume").exit_code == 0
    assert written() == [convert_row(FINE, TO).row] * 5000
    assert {path.name for path in Path().iterdir()} == {"in.jsonl", "out.jsonl"}


RUNNER = f"""
import sys, typer
from chatcodec.commands.convert import register
app = typer.Typer()
register(app)
app.callback()(lambda: None)
if __name__ == "__main__":
    app(["convert", *sys.argv[1:], "--from", "openai", "--to", {NAME!r}])
"""


def spawn(*arguments: str, stdout: Any = subprocess.PIPE, stderr: Any = subprocess.PIPE) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": str(CODECS), "TERM": "xterm-256color", "COLUMNS": "120"}
    return subprocess.Popen([sys.executable, "-c", RUNNER, *arguments], env=environment, stdout=stdout, stderr=stderr)


def test_a_reader_that_goes_away_is_exit_code_141(files: Callable[..., None]) -> None:
    files(*[FINE] * 20_000)
    process = spawn("in.jsonl", "-")
    assert process.stdout and process.stderr
    assert process.stdout.readline()
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(timeout=20) == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_standard_output_on_a_full_disk(files: Callable[..., None]) -> None:
    files(FINE)
    with Path("/dev/full").open("wb") as full:
        process = spawn("in.jsonl", "-", stdout=full)
        _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (2, b"chatcodec: standard output: No space left on device\n")


def test_progress_is_shown_on_a_terminal_alone(files: Callable[..., None]) -> None:
    pty = pytest.importorskip("pty", reason="a terminal is made with pty, which only POSIX has")
    files(*[FINE] * 20_000)
    ours, theirs = pty.openpty()
    process = spawn("in.jsonl", "out.jsonl", stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 1 << 16):
            shown += piece
    except OSError:  # what a terminal says at its end
        pass
    os.close(ours)
    process.communicate(timeout=20)
    assert process.returncode == 0
    assert b"rows," in shown and b"a second" in shown and b"20,000 rows read, 20,000 written" in shown
    process = spawn("in.jsonl", "out.jsonl")
    _, errors = process.communicate(timeout=20)
    assert errors.startswith(b"20,000 rows read")
