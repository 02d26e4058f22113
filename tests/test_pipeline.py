"""Whole conversions: the bytes depend on the input alone, whatever ends a run early; nothing half-written has a final name."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import chatcodec
from chatcodec.convert import Columns, Plan, convert_row, plan
from chatcodec.data import checkpoint, chunks, engine
from chatcodec.data import files as data_files
from chatcodec.data.pipeline import LossError, convert
from chatcodec.data.tables import BadRow, read_rows
from chatcodec.data.tables_out import write_rows
from chatcodec.data.tally import COUNTS, Tally, as_json, from_json
from chatcodec.errors import CodecError

CODECS = Path(__file__).parent.parent / "codecs"
TARGETS = ["out.jsonl", "out.jsonl.gz", "out.jsonl.zst", "out.parquet", "out.arrow"]
NEEDS = {".zst": "zstandard", ".parquet": "pyarrow", ".arrow": "pyarrow"}


def needs(name: str) -> None:
    if module := NEEDS.get(Path(name).suffix):
        pytest.importorskip(module, reason=f"{name} needs {module}, of the extra `data`")


def row(number: int) -> dict[str, Any]:
    """A row; every fifth loses something, every seventh cannot be converted, and some have columns that others do not."""
    messages: list[Any] = [{"role": "user", "content": f"Question {number} — ü"}, {"role": "assistant", "content": "Answer" * (number % 9)}]
    if number % 5 == 0:
        call = {"id": f"own id {number}", "type": "function", "function": {"name": "f", "arguments": {"x": number}}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "1"},
        ]
    if number % 7 == 0:
        messages[0] = {"role": "nobody", "content": "?"}
    return {"id": number, "messages": messages} | ({"note": f"n{number}" if number % 4 else number} if number > 20 else {})


def _tells_apart(name: str) -> bool:
    """Whether a format loses something of every fifth row alone, and does not write every seventh."""
    first, fifth, seventh = (convert_row(row(number), plan("openai", name)) for number in (1, 5, 7))
    return not first.losses and bool(fifth.losses) and seventh.refusal is not None


TO_TEXT = plan("openai", next(filter(_tells_apart, chatcodec.list_formats())))


def lines(count: int) -> bytes:
    texts = [json.dumps(row(number)).encode() for number in range(count)]
    texts[3:3] = [b'{"broken', b"", b"\xff\xfe", b"[]"]
    return b"\n".join(texts) + b"\n"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "CHUNK_BYTES", 1500)
    monkeypatch.setattr(data_files, "CHUNK_ROWS", 5)


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "in.jsonl").write_bytes(lines(60))
    return str(tmp_path / "in.jsonl")


def left(folder: Path) -> set[str]:
    """What stands in a folder beside inputs and outputs."""
    return {path.name for path in folder.rglob("*") if path.name.endswith((".partial", ".checkpoint", ".assembled", ".new"))}


def stop_after(count: int, how: BaseException) -> Callable[..., None]:
    """A progress that ends the run after so many chunks."""
    seen = 0

    def progress(*_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == count:
            raise how

    return progress


# ----------------------------------------------------------------------------------------------------------- what comes out


@pytest.mark.parametrize("name", chatcodec.list_formats())
def test_rows_are_those_of_the_row_function(name: str, source: str, tmp_path: Path) -> None:
    there = plan("openai", name)
    tally = convert(source, str(tmp_path / "out.jsonl"), there, rejects=str(tmp_path / "rejects.jsonl"))
    outcomes = {number: None if isinstance(row, BadRow) else convert_row(row, there) for number, row in read_rows(source)}
    good = {number: outcome for number, outcome in outcomes.items() if outcome and outcome.row is not None}
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()] == [outcome.row for outcome in good.values()]
    refused = [json.loads(line) for line in (tmp_path / "rejects.jsonl").read_bytes().splitlines()]
    assert [each["row"] for each in refused] == [number for number in outcomes if number not in good]
    assert (tally.read, tally.written, tally.refused, tally.rejected) == (len(outcomes), len(good), len(refused), 0)
    assert tally.lossy == sum(bool(outcome.losses) for outcome in good.values())
    for code, found in tally.losses.items():
        all_of_it = [(number, loss) for number, outcome in good.items() for loss in outcome.losses if loss.code == code]
        assert found.count == len(all_of_it)
        assert found.rows == len({number for number, _ in all_of_it})
        assert [(place.row, place.path) for place in found.first] == [(number, loss.path) for number, loss in all_of_it[:3]]
    for each in refused:
        if "data" in each:
            assert each["data"] == row(each["data"]["id"])
            assert convert_row(each["data"], there).refusal == (each["code"], each["path"], each["reason"])


def test_rejects_keep_the_very_bytes_of_lines_that_are_no_rows(source: str, tmp_path: Path) -> None:
    convert(source, str(tmp_path / "out.jsonl"), TO_TEXT, rejects=str(tmp_path / "rejects.jsonl"))
    rejects = [json.loads(line) for line in (tmp_path / "rejects.jsonl").read_bytes().splitlines()]
    broken = {each["row"]: each["line"].encode("utf-8", "surrogateescape") for each in rejects if "line" in each}
    assert broken == {4: b'{"broken', 6: b"\xff\xfe", 7: b"[]"}


@pytest.mark.parametrize("target", ["out.jsonl.gz", "out.parquet"])
def test_bytes_do_not_depend_on_the_number_of_jobs(target: str, source: str, tmp_path: Path) -> None:
    needs(target)
    outputs, tallies = [], []
    for jobs in (1, 3):
        (tmp_path / str(jobs)).mkdir()
        rejects = tmp_path / str(jobs) / "rejects.jsonl.gz"
        tallies.append(convert(source, str(tmp_path / str(jobs) / target), TO_TEXT, jobs=jobs, rejects=str(rejects)))
        outputs.append([(tmp_path / str(jobs) / target).read_bytes(), rejects.read_bytes()])
    assert outputs[0] == outputs[1]
    assert asdict(tallies[0]) == asdict(tallies[1])
    assert not left(tmp_path)


@pytest.mark.parametrize("target", TARGETS)
def test_there_and_back_through_any_kind_of_file(target: str, tmp_path: Path) -> None:
    """What is read back from the text of a format is what came in, but for what is named as lost."""
    needs(target)
    rows = [
        {"id": number, "messages": [{"role": "user", "content": f"Hi {number}"}], "extra": {"n": [number, None, 1.0]}}
        for number in range(30)
    ]
    write_rows(str(tmp_path / "in.jsonl"), rows)
    tally = convert(str(tmp_path / "in.jsonl"), str(tmp_path / target), TO_TEXT)
    assert (tally.lossy, tally.written) == (0, 30)
    convert(str(tmp_path / target), str(tmp_path / "back.jsonl"), plan(TO_TEXT.target, "openai"))
    back = [each for _, each in read_rows(str(tmp_path / "back.jsonl")) if not isinstance(each, BadRow)]
    assert [{key: each[key] for key in ("id", "messages", "extra")} for each in back] == rows


@pytest.mark.parametrize("layout", ["rows.parquet", "rows.arrow", "saved"])
def test_what_one_struct_does_to_arguments_is_undone(layout: str, tmp_path: Path) -> None:
    """A data set whose messages are structs comes out as the JSON that it was made of."""
    arrow = pytest.importorskip("pyarrow", reason="Parquet and Arrow need pyarrow, of the extra `data`")
    rows = []
    for name, arguments in (("f", {"a": 1}), ("g", {"b": "x", "c": {"d": [1.5]}}), ("f", {})):
        properties = {key: {"type": {int: "integer", str: "string", dict: "object"}[type(value)]} for key, value in arguments.items()}
        function = {"name": name, "description": "", "parameters": {"type": "object", "properties": properties}}
        call = {"id": "i", "type": "function", "function": {"name": name, "arguments": arguments}}
        messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
        rows.append({"messages": messages, "tools": json.dumps([{"type": "function", "function": function}])})
    write_rows(str(tmp_path / "rows.jsonl"), rows)
    table = arrow.Table.from_pylist(rows)
    if layout == "saved":
        pytest.importorskip("datasets", reason="the layout is that of Hugging Face's datasets").Dataset(table).save_to_disk(
            tmp_path / layout
        )
    elif layout == "rows.arrow":
        with arrow.ipc.new_file(tmp_path / layout, table.schema) as writer:
            writer.write_table(table)
    else:
        __import__("pyarrow.parquet").parquet.write_table(table, tmp_path / layout)
    convert(str(tmp_path / "rows.jsonl"), str(tmp_path / "whole.jsonl"), TO_TEXT)
    tally = convert(str(tmp_path / layout), str(tmp_path / "mended.jsonl"), TO_TEXT)
    assert (tmp_path / "mended.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert tally.repairs["null_padding_removed"].rows == 3


@pytest.mark.parametrize("on_loss", ["reject", "fail"])
def test_losses_that_are_not_wanted(on_loss: Any, source: str, tmp_path: Path) -> None:
    target, rejects = tmp_path / "out.jsonl", tmp_path / "rejects.jsonl"
    kept = convert(source, str(tmp_path / "kept.jsonl"), TO_TEXT)
    assert kept.lossy
    if on_loss == "reject":
        tally = convert(source, str(target), TO_TEXT, on_loss=on_loss, rejects=str(rejects))
        assert (tally.rejected, tally.written, tally.refused) == (kept.lossy, kept.written - kept.lossy, kept.refused)
        assert tally.losses == kept.losses
        lost = [each for each in map(json.loads, rejects.read_bytes().splitlines()) if "losses" in each]
        assert len(lost) == tally.rejected
        for each in lost:
            assert each["losses"] == [loss._asdict() for loss in convert_row(each["data"], TO_TEXT).losses]
    else:
        for jobs in (1, 2):
            with pytest.raises(LossError) as raised:
                convert(source, str(target), TO_TEXT, on_loss=on_loss, rejects=str(rejects), jobs=jobs)
            (code, found), *_ = kept.losses.items()
            assert (raised.value.code, raised.value.place) == (code, found.first[0])
            assert str(raised.value.place.row) in str(raised.value)
            assert not target.exists() and not rejects.exists() and not left(tmp_path)


def test_a_value_that_json_cannot_hold_is_a_refused_row(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b'{"messages": [{"role": "user", "content": "?"}], "score": 1e999}\n')
    for target in ("out.jsonl", "out.parquet"):
        needs(target)
        tally = convert(str(tmp_path / "in.jsonl"), str(tmp_path / target), TO_TEXT, rejects=str(tmp_path / "rejects.jsonl"))
        assert list(tally.refusals) == ["not_json"]
        assert "Infinity" in json.loads((tmp_path / "rejects.jsonl").read_bytes())["line"]


@pytest.mark.parametrize("target", TARGETS)
def test_no_rows_make_a_file_without_rows(target: str, tmp_path: Path) -> None:
    needs(target)
    (tmp_path / "in.jsonl").write_bytes(b"")
    assert convert(str(tmp_path / "in.jsonl"), str(tmp_path / target), TO_TEXT).read == 0
    assert list(read_rows(str(tmp_path / target))) == []


def test_a_directory_becomes_a_directory(tmp_path: Path) -> None:
    for name, count in (("a.jsonl", 9), ("deep/b.jsonl", 0), ("deep/c.jsonl", 30)):
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "in" / name).write_bytes(lines(count) if count else b"")
    whole = convert(str(tmp_path / "in"), str(tmp_path / "whole.jsonl"), TO_TEXT)
    for jobs in (1, 2):
        target = tmp_path / f"out{jobs}"
        tally = convert(str(tmp_path / "in"), f"{target}/", TO_TEXT, jobs=jobs)
        assert asdict(tally) == asdict(whole)
        shards = [target / "a.jsonl", target / "deep" / "b.jsonl", target / "deep" / "c.jsonl"]
        assert sorted(path for path in target.rglob("*") if path.is_file()) == shards
        assert b"".join(path.read_bytes() for path in shards) == (tmp_path / "whole.jsonl").read_bytes()
    with pytest.raises(CodecError, match="no empty directory"):
        convert(str(tmp_path / "in"), str(target), TO_TEXT)
    assert not left(tmp_path)


def test_progress_comes_to_the_end(source: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in "abc":
        (tmp_path / "in" / f"{name}.jsonl").write_bytes(lines(20))
    for origin, target in ((source, "out.jsonl"), (f"{tmp_path}/in", "all.jsonl"), (f"{tmp_path}/in", "out/")):
        told: list[tuple[int, int, int | None]] = []
        tally = convert(origin, f"{tmp_path}/{target}", TO_TEXT, progress=lambda *now, told=told: told.append(now))
        size = sum(Path(file).stat().st_size for file in data_files.find_files(origin))
        assert told == sorted(told)
        assert told[-1] == (tally.read, size, size)


def test_a_directory_that_fails_leaves_nothing(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / "in" / name).mkdir(parents=True)
        write_rows(str(tmp_path / "in" / name / "x.jsonl"), [row(number) for number in range(1, 4)] + [row(5)] * (name == "c"))
    with pytest.raises(LossError):
        convert(str(tmp_path / "in"), f"{tmp_path / 'out'}/", TO_TEXT, on_loss="fail")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


# ----------------------------------------------------------------------------------------------------------------- resuming


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], tuple[list[bytes], Tally]]]:
    """The bytes of a whole run, by the name of the target."""
    known: dict[str, tuple[list[bytes], Tally]] = {}

    def run(target: str) -> tuple[list[bytes], Tally]:
        if target not in known:
            folder = tmp_path_factory.mktemp("whole")
            known[target] = _run(folder, target)
        return known[target]

    yield run


def _run(folder: Path, target: str, **how: Any) -> tuple[list[bytes], Tally]:
    """Convert two files of a directory to one; gives the bytes that came out."""
    before = Path.cwd()
    (folder / "in").mkdir(exist_ok=True)
    for name, data in (("a.jsonl", lines(40)), ("b.jsonl", lines(20))):
        if not (folder / "in" / name).exists():
            (folder / "in" / name).write_bytes(data)
    os.chdir(folder)  # so that the names in the rejects are the same everywhere
    try:
        tally = convert("in", target, TO_TEXT, rejects="rejects.jsonl", **how)
        return [Path(target).read_bytes(), Path("rejects.jsonl").read_bytes()], tally
    finally:
        os.chdir(before)


@pytest.mark.parametrize("target", TARGETS)
@given(stops=st.lists(st.integers(1, 30), min_size=1, max_size=3), kill=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
def test_resuming_gives_the_same_bytes(
    target: str, stops: list[int], kill: bool, uninterrupted: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Stopped after any chunk, once or more, by an interrupt or so suddenly that only an older checkpoint is left."""
    needs(target)
    folder = tmp_path_factory.mktemp("stopped")
    with pytest.MonkeyPatch.context() as patch:
        if kill:
            patch.setattr(engine, "_keep", lambda job: False)
        for index, stop in enumerate(stops):
            try:
                _run(folder, target, progress=stop_after(stop, KeyboardInterrupt()), resume=index > 0, checkpoint_seconds=stop % 2 * 100.0)
            except KeyboardInterrupt:
                assert not (folder / target).exists()
                if kill:
                    for staged in (folder / f"{target}.partial", folder / "rejects.jsonl.partial"):
                        with staged.open("ab") as file:
                            file.write(b"half a chunk")
            else:
                break
        found, tally = _run(folder, target, resume=True)
    whole, whole_tally = uninterrupted(target)
    assert found == whole
    assert as_json(tally) == as_json(whole_tally)
    assert not left(folder)


@pytest.mark.parametrize("target", ["out.jsonl", "out.parquet"])
@pytest.mark.parametrize("moment", range(12))
def test_resuming_after_an_end_between_the_last_steps(target: str, moment: int, uninterrupted: Any, tmp_path: Path) -> None:
    """Ended before any of the renames and removals that finish a conversion."""
    needs(target)
    steps = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == moment + 1:
                raise KeyboardInterrupt
            return real(*arguments, **options)

        return step

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_keep", lambda job: False)
        for name in ("publish", "save", "assemble", "_finish", "_assemble", "_close"):
            patch.setattr(engine, name, counted(getattr(engine, name)))
        try:
            _run(tmp_path, target)
        except KeyboardInterrupt:
            pass
        else:
            assert moment > 4
    found, _ = _run(tmp_path, target, resume=True)
    assert found == uninterrupted(target)[0]
    assert not left(tmp_path)


def test_a_directory_is_resumed_too(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{name}.jsonl").write_bytes(lines(25))
    whole = convert(str(tmp_path / "in"), f"{tmp_path}/whole/", TO_TEXT)
    for stop in range(1, 30, 4):
        try:
            convert(str(tmp_path / "in"), f"{tmp_path}/out/", TO_TEXT, progress=stop_after(stop, KeyboardInterrupt()))
        except KeyboardInterrupt:
            assert not (tmp_path / "out").exists()
            assert as_json(convert(str(tmp_path / "in"), f"{tmp_path}/out/", TO_TEXT, resume=True)) == as_json(whole)
        for name in "abc":
            assert (tmp_path / "out" / f"{name}.jsonl").read_bytes() == (tmp_path / "whole" / f"{name}.jsonl").read_bytes()
            (tmp_path / "out" / f"{name}.jsonl").unlink()
        (tmp_path / "out").rmdir()
    assert not left(tmp_path)


def test_a_checkpoint_belongs_to_its_conversion(source: str, tmp_path: Path) -> None:
    target = str(tmp_path / "out.jsonl")

    def interrupted() -> None:
        with pytest.raises(KeyboardInterrupt):
            convert(source, target, TO_TEXT, progress=stop_after(2, KeyboardInterrupt()))

    interrupted()
    other = plan("openai", chatcodec.list_formats()[-1])
    with pytest.raises(CodecError, match=f'to differs: "{TO_TEXT.target}" then, "{other.target}" now'):
        convert(source, target, other, resume=True)
    with pytest.raises(CodecError, match="on_loss differs"):
        convert(source, target, TO_TEXT, resume=True, on_loss="reject")
    with pytest.raises(CodecError, match="columns differs"):
        convert(source, target, plan("openai", TO_TEXT.target, columns=Columns(messages="m")), resume=True)
    os.utime(source, (1, 1))
    with pytest.raises(CodecError, match="files differs"):
        convert(source, target, TO_TEXT, resume=True)
    kept = tmp_path / "out.jsonl.checkpoint"
    for junk in (b"", b"[]", b"{}", kept.read_bytes()[:-20], b'{"version": 99}', b"\xff"):
        kept.write_bytes(junk)
        with pytest.raises(CodecError, match="run without resuming"):
            convert(source, target, TO_TEXT, resume=True)
    interrupted()
    os.truncate(f"{target}.partial", 1)
    with pytest.raises(CodecError, match="shorter than its checkpoint says"):
        convert(source, target, TO_TEXT, resume=True)
    convert(source, target, TO_TEXT)  # without resuming it begins anew
    assert not left(tmp_path)


@given(
    counts=st.lists(st.integers(0, 9), min_size=6, max_size=6), codes=st.dictionaries(st.text(max_size=4), st.integers(1, 9), max_size=4)
)
def test_a_tally_goes_through_json(counts: list[int], codes: dict[str, int]) -> None:
    from chatcodec.data.tally import Place, note

    tally = Tally(**dict(zip(COUNTS, counts, strict=True)))  # type: ignore[arg-type]
    for code, number in codes.items():
        for index in range(number):
            note(tally.losses, code, Place("f", index, "p", None), again=index % 2 == 1)
    assert from_json(json.loads(json.dumps(as_json(tally)))) == tally


# --------------------------------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(("target", "jobs"), [*((target, 1) for target in TARGETS), ("out.jsonl", 2)])
def test_a_full_disk_is_one_clear_error(
    target: str, jobs: int, uninterrupted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(target)
    calls = 0

    def full(handle: int, data: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls == 7:
            checkpoint.write_all(handle, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        checkpoint.write_all(handle, data)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "write_all", full)
        with pytest.raises(CodecError, match=r"No space left on device\n\d+ rows are done") as raised:
            _run(tmp_path, target, jobs=jobs)
    assert raised.value.__cause__ is None
    assert not (tmp_path / target).exists()
    assert _run(tmp_path, target, resume=True)[0] == uninterrupted(target)[0]


def test_a_disk_that_is_full_from_the_start_leaves_nothing(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for module in (engine, checkpoint):
        monkeypatch.setattr(module, "write_all", full)
    with pytest.raises(CodecError, match="No space left on device"):
        convert(source, str(tmp_path / "out.jsonl"), TO_TEXT, rejects=str(tmp_path / "rejects.jsonl"))
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_an_input_that_vanishes_is_one_clear_error(uninterrupted: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.jsonl").write_bytes(lines(20))
    away, there = tmp_path / "away", tmp_path / "in" / "b.jsonl"

    def vanish(*_: object) -> None:
        if there.exists():
            there.rename(away)

    with pytest.raises(CodecError, match=r"b\.jsonl': no such file\n\d+ rows are done"):
        _run(tmp_path, "out.jsonl", progress=vanish)
    assert not (tmp_path / "out.jsonl").exists()
    away.rename(there)
    assert _run(tmp_path, "out.jsonl", resume=True)[0] == uninterrupted("out.jsonl")[0]


def test_what_is_asked_for_is_checked_first(source: str, tmp_path: Path) -> None:
    fine = str(tmp_path / "out.jsonl")
    for arguments, options, message in [
        ((str(tmp_path / "none.jsonl"), fine), {}, "no such file"),
        ((source, source), {}, "must be different files"),
        ((source, fine), {"rejects": fine}, "must be different files"),
        ((source, str(tmp_path / "no" / "out.jsonl")), {}, "there is no directory"),
        ((source, str(tmp_path / "out.csv")), {}, "the name does not say"),
        ((source, fine), {"rejects": str(tmp_path / "r.parquet")}, "rejects go to a file of JSON Lines"),
        ((source, fine), {"rejects": "-"}, "rejects go to a file of JSON Lines"),
        ((source, fine), {"jobs": 0}, "jobs must be 1 or more"),
        ((source, fine), {"on_loss": "kep"}, "did you mean 'keep'"),
        ((source, "-"), {"resume": True}, "cannot be resumed"),
        (("-", f"{tmp_path}/"), {}, "go to one file"),
    ]:
        with pytest.raises(CodecError, match=message):
            convert(*arguments, TO_TEXT, **options)  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_a_worker_that_dies_is_one_clear_error(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform != "linux":
        pytest.skip("the workers of other systems do not see what is patched here")

    def die(row: Any, plan: Plan) -> Any:
        os._exit(9)

    monkeypatch.setattr(chunks, "convert_row", die)
    from multiprocessing import get_context

    monkeypatch.setattr("chatcodec.data.workers._context", lambda: get_context("fork"))
    with pytest.raises(CodecError, match="a worker process ended without a word"):
        convert(source, str(tmp_path / "out.jsonl"), TO_TEXT, jobs=2)
    assert not (tmp_path / "out.jsonl").exists()


# ---------------------------------------------------------------------------------------------------- in a process of its own

RUNNER = """
import json, sys
from chatcodec.data import files as data_files
from chatcodec.convert import plan
from chatcodec.errors import CodecError
from chatcodec.data.pipeline import convert
target, name, options = sys.argv[1:]
data_files.CHUNK_BYTES = 20_000
if __name__ == "__main__":
    try:
        convert("-", target, plan("openai", name), checkpoint_seconds=1e9, **json.loads(options))
    except KeyboardInterrupt:
        sys.exit(130)
    except CodecError as error:
        sys.exit(str(error))
"""


def spawn(target: str, **options: Any) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": str(CODECS)}
    command = [sys.executable, "-c", RUNNER, target, TO_TEXT.target, json.dumps(options)]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupt_leaves_a_checkpoint(jobs: int, tmp_path: Path) -> None:
    data = b"".join(json.dumps(row(number)).encode() + b"\n" for number in range(1_500))
    target = str(tmp_path / "out.jsonl")
    process = spawn(target, jobs=jobs)
    assert process.stdin
    process.stdin.write(data[: len(data) * 3 // 4])
    process.stdin.flush()
    staged = Path(f"{target}.partial")
    wait_for(lambda: staged.exists() and staged.stat().st_size)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (130, b"")
    assert not Path(target).exists()
    assert staged.stat().st_size == json.loads(Path(f"{target}.checkpoint").read_bytes())["staged"]
    process = spawn(target, jobs=jobs, resume=True)
    _, errors = process.communicate(data, timeout=30)
    assert (process.returncode, errors) == (0, b"")
    whole = spawn("-").communicate(data, timeout=30)[0]
    assert Path(target).read_bytes() == whole
    assert not left(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="who is whose child is read from /proc")
def test_workers_end_with_a_run_that_is_killed(tmp_path: Path) -> None:
    process = spawn(str(tmp_path / "out.jsonl"), jobs=2)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_for(lambda: len(children.read_text().split()) >= 2)
    workers = children.read_text().split()
    process.kill()
    process.communicate()
    wait_for(lambda: not any(Path(f"/proc/{worker}/cmdline").exists() for worker in workers))


@pytest.mark.skipif(sys.platform == "win32", reason="the limit of a file's size is POSIX's")
def test_a_file_that_cannot_grow_is_one_clear_error(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    limited = (
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))\n{RUNNER}"
    )
    assert resource.RLIMIT_FSIZE is not None
    data = b"".join(json.dumps(row(number)).encode() + b"\n" for number in range(1_500))
    command = [sys.executable, "-c", limited, str(tmp_path / "out.jsonl"), TO_TEXT.target, "{}"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(CODECS)}, input=data, capture_output=True, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stderr.decode().startswith(f"'{tmp_path / 'out.jsonl'}': File too large")
    assert not (tmp_path / "out.jsonl").exists()
