"""The commands `tokenize` and `show`: what they write is what the library says, and every row is accounted for."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import chatcodec
from chatcodec.commands import show, tokenize
from chatcodec.tokens.masks import assistant_mask
from chatcodec.tokens.tokenizing import Settings
from chatcodec.tokens.tokenizing import tokenize as tokenize_files
from make_tokenizer import hf_tokenizer

pytest.importorskip("pyarrow")

formats = pytest.mark.parametrize("name", chatcodec.list_formats())
app = typer.Typer()
tokenize.register(app)
show.register(app)


def conversation(number: int) -> dict[str, Any]:
    turn = {"role": "assistant", "content": f"The answer is {number}.", "reasoning_content": "Count <|im_end|>." * (number % 3)}
    return {"messages": [{"role": "user", "content": f"What is {number}? " * (1 + number % 7)}, turn]}


ROWS = [conversation(number) for number in range(300)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    hf_tokenizer().save(str(path))
    return str(path)


def data(folder: Path, rows: list[Any]) -> str:
    path = folder / "rows.jsonl"
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def written(path: Path) -> list[dict[str, Any]]:
    from pyarrow import ipc, parquet

    if path.suffix == ".parquet":
        found: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
        return found
    with ipc.open_file(path) as file:
        rows: list[dict[str, Any]] = file.read_all().to_pylist()
        return rows


@formats
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_rows_are_what_the_library_says(name: str, suffix: str, tmp_path: Path, tokenizer: str) -> None:
    target = tmp_path / f"out.{suffix}"
    counts = tokenize_files(data(tmp_path, ROWS), str(target), Settings(name, tokenizer))
    fmt, own = chatcodec.get_format(name), hf_tokenizer()
    expected: list[dict[str, Any]] = []
    for row in ROWS:
        mask = assistant_mask(fmt.render(row["messages"]), own)
        expected.append({"input_ids": mask.ids, "assistant_mask": list(mask), "labels": mask.labels, "length": len(mask)})
    assert written(target) == expected
    assert (counts.rows, counts.written, counts.refused, counts.too_long) == (300, 300, 0, 0)
    assert counts.tokens == sum(row["length"] for row in expected)
    assert counts.trained == sum(sum(row["assistant_mask"]) for row in expected) > 0
    assert sum(counts.lengths.values()) == 300
    assert not list(tmp_path.glob("*.partial"))


def test_jobs_change_nothing(tmp_path: Path, tokenizer: str) -> None:
    rows = data(tmp_path, ROWS * 6)
    one, two = tmp_path / "one.parquet", tmp_path / "two.parquet"
    settings = Settings("qwen3_5", tokenizer)
    assert tokenize_files(rows, str(one), settings) == tokenize_files(rows, str(two), settings, jobs=2)
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize("on_long", ["drop", "truncate"])
def test_what_is_too_long_is_told(on_long: str, tmp_path: Path, tokenizer: str) -> None:
    target = tmp_path / "out.parquet"
    arguments = ["tokenize", data(tmp_path, ROWS), str(target), "--format", "qwen3_5", "--tokenizer", tokenizer, "--json"]
    done = CliRunner().invoke(app, [*arguments, "--max-length", "60", "--on-long", on_long])
    assert done.exit_code == 0, done.output
    counts, rows = json.loads(done.output), written(target)
    long = {int(length): count for length, count in counts["lengths"].items() if int(length) > 60}
    assert counts["too_long"] == sum(long.values()) > 0
    assert counts["cut_tokens"] == (sum((length - 60) * count for length, count in long.items()) if on_long == "truncate" else 0)
    assert len(rows) == counts["written"] == (300 if on_long == "truncate" else 300 - counts["too_long"])
    assert max(row["length"] for row in rows) <= 60


def test_bad_rows_are_told_and_the_others_written(tmp_path: Path, tokenizer: str) -> None:
    bad = [ROWS[0], "{\n", {"messages": 3}, {"messages": [{"role": "user", "content": "\ud83d"}]}, {"messages": []}, ROWS[1]]
    target = tmp_path / "out.arrow"
    arguments = ["tokenize", data(tmp_path, bad), str(target), "--format", "qwen3_5", "--tokenizer", tokenizer, "--pretty"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert len(written(target)) == 2
    assert "6 read, 2 written, 4 refused" in done.output
    for place in ("rows.jsonl:2:", "rows.jsonl:3: messages must be a list", "rows.jsonl:4:", "rows.jsonl:5:"):
        assert place in done.output
    assert "█" in done.output and "trained on" in done.output


def test_turns_that_are_left_out_are_told(tmp_path: Path, tokenizer: str) -> None:
    messages = [*ROWS[1]["messages"], *ROWS[2]["messages"]]
    arguments = ["tokenize", data(tmp_path, [{"messages": messages}]), str(tmp_path / "o.parquet"), "-f", "solar_open2", "--pretty"]
    done = CliRunner().invoke(app, [*arguments, "--tokenizer", tokenizer])
    assert "1 turns that no longer render as they were sampled" in done.output


@pytest.mark.parametrize(
    ("target", "given", "words"),
    [
        ("o.csv", {}, "written as .parquet or .arrow"),
        ("o.parquet", {"tokenizer": "none.json"}, "No such file"),
        ("o.parquet", {"tokenizer": __file__}, "no tokenizer.json"),
        ("o.parquet", {"format": "qwen"}, "did you mean 'qwen3_5'"),
        ("o.parquet", {"options": {"enable_thinkin": True}}, "did you mean 'enable_thinking'"),
        ("o.parquet", {"kinds": frozenset(["contents"])}, "did you mean 'content'"),
        ("o.parquet", {"max_length": 0}, "1 or more"),
        ("nowhere/o.parquet", {}, "No such file"),
    ],
)
def test_what_is_asked_wrongly(target: str, given: dict[str, Any], words: str, tmp_path: Path, tokenizer: str) -> None:
    settings = Settings(**{"format": "qwen3_5", "tokenizer": tokenizer, **given})
    with pytest.raises(chatcodec.CodecError, match=words):
        tokenize_files(data(tmp_path, ROWS[:3]), str(tmp_path / target), settings)
    assert not (tmp_path / target).exists() and not list(tmp_path.glob("*.partial"))


@formats
def test_show(name: str, tmp_path: Path, tokenizer: str) -> None:
    chat, html = tmp_path / "chat.json", tmp_path / "page.html"
    hostile = {"role": "user", "content": "<script>alert(1)</script> \x1b[31m <|im_end|> 여름"}
    chat.write_text(json.dumps([hostile, ROWS[1]["messages"][1]]), encoding="utf-8")
    arguments = ["show", name, str(chat), "--tokenizer", tokenizer]
    plain = json.loads(CliRunner().invoke(app, arguments).output)
    mask = assistant_mask(chatcodec.get_format(name).render([hostile, ROWS[1]["messages"][1]]), hf_tokenizer())
    assert (plain["ids"], plain["mask"], plain["text"]) == (mask.ids, list(mask), mask.encoded.rendered.text)
    seen = CliRunner().invoke(app, [*arguments, "--pretty", "--html", str(html)]).output
    assert "\x1b[31m" not in seen and seen.count(show.BORDER) == len(mask)
    assert f"{len(mask)} tokens, {sum(mask)} trained on" in seen
    page = html.read_text(encoding="utf-8")
    assert "<script" not in page and page.count('class="t ') >= len(mask)
    shown = "".join(token.text for token in show.tokens(mask.encoded, mask))
    assert shown == mask.encoded.rendered.text
