"""Rows come out of files as they went in, whatever the file; what is no row is named; what is no file is an error of ours."""

import gzip
import io
import json
import random
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatcodec.data import files as data_files
from chatcodec.data import tables_out
from chatcodec.data.files import chunks_of, find_files
from chatcodec.data.tables import BadRow, read_rows
from chatcodec.data.tables_out import kind_of, write_rows
from chatcodec.errors import CodecError

LINES = ["rows.jsonl", "rows.ndjson", "rows.jsonl.gz"]
PACKED = ["rows.jsonl.zst"]
TABLES = ["rows.parquet", "rows.arrow", "rows.arrows", "rows.feather"]

Rows = list[dict[str, Any]]


def needs(name: str) -> None:
    """Skip what the extra `data` is for, where it is not installed."""
    if name in TABLES:
        pytest.importorskip("pyarrow", reason="Parquet and Arrow need pyarrow, of the extra `data`")
    if name in PACKED:
        pytest.importorskip("zstandard", reason="Zstandard needs zstandard, of the extra `data`")


def good(source: Path) -> Rows:
    rows = [row for _, row in read_rows(str(source))]
    assert not [row for row in rows if isinstance(row, BadRow)]
    return [row for row in rows if not isinstance(row, BadRow)]


def bad(source: Path) -> list[tuple[int, str]]:
    return [(number, row.code) for number, row in read_rows(str(source)) if isinstance(row, BadRow)]


def same(one: Any, other: Any) -> bool:
    """Equal in JSON's eyes, so that 1, 1.0 and True differ, and so does the order of keys."""
    return json.dumps(one) == json.dumps(other)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
columns = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
many_rows = st.lists(st.dictionaries(columns, json_values, min_size=1, max_size=4), max_size=12)


@pytest.mark.parametrize("name", [*LINES, *PACKED])
@given(rows=many_rows)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
def test_lines_give_back_every_row(name: str, rows: Rows, tmp_path: Path) -> None:
    needs(name)
    write_rows(str(tmp_path / name), rows)
    assert same(good(tmp_path / name), rows)


@pytest.mark.parametrize("name", TABLES)
@given(rows=many_rows, at_once=st.integers(1, 5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
def test_tables_give_back_every_row_but_for_nulls(name: str, rows: Rows, at_once: int, tmp_path: Path) -> None:
    """A table has the same columns in all rows: what a row does not have is null, as what it has as null."""
    needs(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables_out, "ROWS_AT_ONCE", at_once)
        write_rows(str(tmp_path / name), rows)
    keys = list(dict.fromkeys(key for row in rows for key in row))
    assert same(good(tmp_path / name), [{key: row.get(key) for key in keys} for row in rows])


@given(lines=st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=20), ended=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_line_is_a_row_or_says_why_not(lines: list[bytes], ended: bool, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"\n".join(lines) + b"\n" * ended)
    if file.read_bytes().startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"ARROW1", b"\xff\xff\xff\xff", b"FEA1", b"\xef\xbb\xbf")):
        return
    found = dict(read_rows(str(file)))
    assert list(found) == [number for number, line in enumerate(lines, 1) if line and not line.isspace()]
    for number, row in found.items():
        if isinstance(row, BadRow):
            assert row.line.encode("utf-8", "surrogateescape") == lines[number - 1]


@given(sizes=st.lists(st.integers(0, 40), max_size=60), seed=st.integers(0, 1 << 30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_chunks_depend_on_the_file_alone(sizes: list[int], seed: int, tmp_path: Path) -> None:
    data = b"".join(b"x" * size + b"\n" for size in sizes) + b"tail" * (seed % 2)
    chosen = random.Random(seed)

    def blocks() -> Any:
        rest = data
        while rest:
            size = chosen.randint(1, 50)
            yield rest[:size]
            rest = rest[size:]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_files, "CHUNK_BYTES", 64)
        cut, again = ([*data_files._line_chunks("f", some, None)] for some in (blocks(), iter([data])))
    assert cut == again
    assert b"".join(chunk.data for chunk in cut) == data
    number = 1
    for chunk in cut:
        assert chunk.first == number
        number += chunk.rows
    assert number - 1 == len(sizes) + seed % 2


def test_bad_lines_are_told_apart(tmp_path: Path) -> None:
    lines = [
        (b'\xef\xbb\xbf{"fine": 1}', ""),
        (b'{"a": 1', "invalid_json"),
        (b"", ""),
        (b" \t\r", ""),
        (b"[1]", "not_an_object"),
        (b"null", "not_an_object"),
        (b'{"a": "\xff"}', "invalid_utf8"),
        (b'{"a": NaN}', "invalid_json"),
        (b'{"a": ' + b"1" * 5000 + b"}", "invalid_json"),
        (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "invalid_json"),
        (b'{"a": 1} {"b": 2}', "invalid_json"),
        (b'{"half": "\\ud83d"}\r', ""),
    ]
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"\n".join(line for line, _ in lines))
    assert bad(file) == [(number, code) for number, (_, code) in enumerate(lines, 1) if code]
    assert [row for _, row in read_rows(str(file)) if not isinstance(row, BadRow)] == [{"fine": 1}, {"half": "\ud83d"}]


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "LONGEST_LINE", 4 << 20)
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b'{"a": 1}\n{"b": "' + b"x" * (9 << 20) + b'"}\n{"c": 3}\n')
    found = list(read_rows(str(file)))
    assert [number for number, _ in found] == [1, 2, 3]
    assert isinstance(found[1][1], BadRow) and found[1][1].code == "line_too_long"
    assert found[2][1] == {"c": 3}


@pytest.mark.parametrize("name", [*LINES, *PACKED, *TABLES])
def test_a_file_that_is_cut_off_is_an_error(name: str, tmp_path: Path) -> None:
    needs(name)
    noise = random.Random(1)
    write_rows(str(tmp_path / name), [{"id": number, "text": noise.randbytes(900).hex()} for number in range(600)])
    whole = (tmp_path / name).read_bytes()
    cut = tmp_path / f"cut-{name}"
    cut.write_bytes(whole[: len(whole) * 2 // 3])
    if name in ("rows.jsonl", "rows.ndjson"):
        assert [code for _, code in bad(cut)] == ["invalid_json"]
    elif name == "rows.arrows":  # its end has no mark that must be there
        with pytest.raises(CodecError, match=r"cut-rows"):
            list(read_rows(str(cut)))
    else:
        with pytest.raises(CodecError, match=r"cut-rows") as raised:
            list(read_rows(str(cut)))
        assert raised.value.__cause__ is None and "\n" not in str(raised.value)


@pytest.mark.parametrize("name", [*LINES, *PACKED, *TABLES])
def test_junk_under_any_name_is_rows_or_an_error(name: str, tmp_path: Path) -> None:
    needs(name)
    write_rows(str(tmp_path / name), [{"id": number, "text": "x" * 50} for number in range(50)])
    whole = bytearray((tmp_path / name).read_bytes())
    noise = random.Random(name)
    for _ in range(60):
        broken = bytearray(whole)
        for _ in range(noise.randint(1, 8)):
            broken[noise.randrange(len(broken))] = noise.randrange(256)
        (tmp_path / name).write_bytes(broken)
        try:
            list(read_rows(str(tmp_path / name)))
        except CodecError as error:
            assert name in str(error)


def test_members_and_frames_of_a_packed_file_are_one_file(tmp_path: Path) -> None:
    lines = [json.dumps({"n": number}).encode() + b"\n" for number in range(100)]
    (tmp_path / "g.jsonl.gz").write_bytes(b"".join(map(gzip.compress, lines)))
    assert [row["n"] for row in good(tmp_path / "g.jsonl.gz")] == list(range(100))
    zstandard = pytest.importorskip("zstandard", reason="Zstandard needs zstandard, of the extra `data`")
    frames = b"".join(map(zstandard.ZstdCompressor().compress, lines))
    (tmp_path / "z.jsonl.zst").write_bytes(frames)
    assert [row["n"] for row in good(tmp_path / "z.jsonl.zst")] == list(range(100))


def test_a_pipe_is_read_like_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: Rows = [{"n": number} for number in range(1000)]
    write_rows(str(tmp_path / "r.jsonl.gz"), rows)
    for data in ((tmp_path / "r.jsonl.gz").read_bytes(), b"".join(map(tables_out.line_of, rows))):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))
        assert [row for _, row in read_rows("-")] == rows


def test_names_that_promise_something_else(tmp_path: Path) -> None:
    for name, data in [("a.parquet", b"{}\n"), ("b.arrow", b"{}"), ("c.jsonl.gz", b""), ("d.parquet", b""), ("e.json", b'\n [{"a": 1}]')]:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(CodecError, match=name):
            list(read_rows(str(tmp_path / name)))
    (tmp_path / "unpacked.jsonl.gz").write_bytes(b'{"a": 1}\n')
    assert good(tmp_path / "unpacked.jsonl.gz") == [{"a": 1}]
    (tmp_path / "empty.jsonl").write_bytes(b"")
    assert good(tmp_path / "empty.jsonl") == []
    with pytest.raises(CodecError, match="no such file"):
        list(read_rows(str(tmp_path / "nothing.jsonl")))
    for name in ("x.csv", "x", "x.gz", "x.parquet.gz"):
        with pytest.raises(CodecError, match="the name does not say"):
            kind_of(name)


def test_a_directory_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    for name in (
        "b/2.jsonl",
        "b/10.jsonl",
        "a.jsonl",
        "c.ndjson",
        "_skip.jsonl",
        ".skip.jsonl",
        "README.md",
        "b/dataset_infos.json",
        "c/x.jsonl.partial",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps({"file": name}) + "\n")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert [row["file"] for row in good(tmp_path)] == ["a.jsonl", "b/10.jsonl", "b/2.jsonl", "c.ndjson"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(CodecError, match="no data file"):
        find_files(str(tmp_path / "empty"))


# --------------------------------------------------------------------------------------------------------- of datasets

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
OTHER = {"id": "d", "type": "function", "function": {"name": "g", "arguments": {"b": "x", "c": [1.5]}}}
TALKS: Rows = [
    {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": [CALL]}], "tools": "[]"},
    {"messages": [{"role": "assistant", "content": "", "tool_calls": [OTHER, CALL]}], "tools": "[1]"},
]


@pytest.mark.parametrize("name", ["talks.parquet", "talks.arrow", "talks.arrows"])
def test_structs_come_as_arrow_has_them(name: str, tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="Parquet and Arrow need pyarrow, of the extra `data`")
    from pyarrow import ipc, parquet

    table = arrow.Table.from_pylist(TALKS)
    if name.endswith(".parquet"):
        parquet.write_table(table, tmp_path / name)
    else:
        with (ipc.new_file if name.endswith(".arrow") else ipc.new_stream)(tmp_path / name, table.schema) as writer:
            writer.write_table(table)
    assert same(good(tmp_path / name), table.to_pylist())


def test_values_of_arrow_become_those_of_json(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="Parquet and Arrow need pyarrow, of the extra `data`")
    from pyarrow import parquet

    pair = arrow.struct({"x": arrow.int64(), "y": arrow.int64()})
    table = arrow.table({
        "day": arrow.array([date(2026, 3, 14), None]),
        "time": arrow.array([datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC), None]),
        "money": arrow.array([Decimal("1.50"), None]),
        "bytes": arrow.array([b"\x00\xff", None]),
        "map": arrow.array([[("k", {"x": 1, "y": None})], None], arrow.map_(arrow.string(), pair)),
        "word": arrow.array(["w", None]).dictionary_encode(),
        "json": arrow.array(['{"n": null, "f": 1.0}', None], arrow.json_(arrow.string())),
        "large": arrow.array([["x", None], None], arrow.large_list(arrow.large_string())),
    })  # fmt: skip
    parquet.write_table(table, tmp_path / "t.parquet")
    first, second = good(tmp_path / "t.parquet")
    assert first == {
        "day": "2026-03-14", "time": "2026-03-14T15:09:26+00:00", "money": "1.50", "bytes": "AP8=",
        "map": {"k": {"x": 1, "y": None}}, "word": "w", "json": {"n": None, "f": 1.0}, "large": ["x", None],
    }  # fmt: skip
    assert set(second.values()) == {None}


def test_a_bad_cell_spoils_its_own_row_only(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="Parquet and Arrow need pyarrow, of the extra `data`")
    from pyarrow import parquet

    text = arrow.array([b"fine", b"\xff", b"fine"]).view(arrow.string())
    document = arrow.array(["{}", "{}", "{"], arrow.json_(arrow.string()))
    table = arrow.table({"text": text, "json": document})
    parquet.write_table(table, tmp_path / "t.parquet")
    assert bad(tmp_path / "t.parquet") == [(2, "invalid_value"), (3, "invalid_json")]


def test_data_sets_that_were_saved(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the layout is that of Hugging Face's datasets")
    datasets.disable_progress_bars()
    both = datasets.Dataset.from_list(TALKS)
    datasets.DatasetDict(train=both.select([1]), test=both.select([0])).save_to_disk(tmp_path / "dict")
    assert same(good(tmp_path / "dict"), both.to_list()[::-1])
    both.save_to_disk(tmp_path / "one", num_shards=2)
    (tmp_path / "one" / "cache-1.arrow").write_bytes(b"no part of it")
    assert same(good(tmp_path / "one"), both.to_list())
    state = tmp_path / "one" / "state.json"
    for broken in ("", "[]", "{}", '{"_data_files": [{"filename": "../x.arrow"}]}', '{"_data_files": 1}'):
        state.write_text(broken)
        with pytest.raises(CodecError, match=r"state\.json"):
            find_files(str(tmp_path / "one"))


def test_datasets_reads_what_is_written(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the other reader is Hugging Face's datasets")
    if not hasattr(datasets, "Json"):
        pytest.skip("this version of datasets does not know JSON columns")
    rows: Rows = [{"id": 1, **TALKS[0]}, {"id": 2, "score": 0.5, **TALKS[1]}]
    write_rows(str(tmp_path / "rows.parquet"), rows)
    read = datasets.Dataset.from_parquet(str(tmp_path / "rows.parquet"), cache_dir=str(tmp_path / "cache"))
    assert [row["messages"] for row in read] == [row["messages"] for row in rows]
    assert read["score"][:] == [None, 0.5]


# --------------------------------------------------------------------------------------------------------------- writing


def test_a_row_that_json_cannot_hold_leaves_no_file(tmp_path: Path) -> None:
    for name in ("r.jsonl", "r.jsonl.gz", *TABLES):
        needs(name)
        for value in (float("nan"), {"deep": float("inf")}, b"bytes", {1, 2}):
            with pytest.raises(CodecError, match="rows 1 to 1"):
                write_rows(str(tmp_path / name), [{"a": value}])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "module"), [("x.parquet", "pyarrow"), ("x.arrow", "pyarrow"), ("x.jsonl.zst", "zstandard")])
def test_what_is_not_installed_is_named(name: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_bytes(
        b"ARROW1\0\0" if module == "pyarrow" and "arrow" in name else b"PAR1" if "parquet" in name else b"\x28\xb5\x2f\xfd"
    )
    for known in list(sys.modules):
        if known == module or known.startswith(f"{module}."):
            monkeypatch.delitem(sys.modules, known)
    monkeypatch.setitem(sys.modules, module, None)
    for use in (lambda: list(chunks_of(str(tmp_path / name))), lambda: kind_of(name)):
        with pytest.raises(CodecError, match=rf'{module} .*pip install "chatcodec\[data\]"'):
            use()
