"""Conversions on Ray give the bytes and the counts of those on this machine."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import chatcodec
from chatcodec.convert import plan
from chatcodec.data.pipeline import LossError
from chatcodec.data.pipeline import convert as convert_here
from chatcodec.errors import CodecError

ray = pytest.importorskip("ray", reason="Ray is not installed (the extra `ray`)")
pytest.importorskip("pyarrow", reason="Ray Data needs pyarrow")

from chatcodec.integrations.ray import convert  # noqa: E402

CODECS = Path(__file__).parent.parent / "codecs"
TO = plan("openai", chatcodec.list_formats()[-1])

# Ray's own warnings are none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A cluster of two workers on this machine."""
    environment = {"env_vars": {"PYTHONPATH": str(CODECS)}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=environment, object_store_memory=100 << 20)
    yield
    ray.shutdown()


def row(number: int) -> dict[str, Any]:
    call = {"id": f"own {number}", "type": "function", "function": {"name": "f", "arguments": {"x": number}}}
    messages: list[Any] = [{"role": "user" if number % 7 else "nobody", "content": "?" * number}]
    return {
        "id": number,
        "messages": [*messages, *([{"role": "assistant", "content": "", "tool_calls": [call]}] if number % 5 == 0 else [])],
    }


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    for name, count in (("a.jsonl", 30), ("b/c.jsonl", 50), ("d.jsonl", 0), ("e.jsonl", 10)):
        Path("in", name).parent.mkdir(parents=True, exist_ok=True)
        Path("in", name).write_text("".join(json.dumps(row(number)) + "\n" for number in range(count)) + ("junk\n" if count else ""))
    return "in"


def files(folder: str) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def test_shards_and_counts_are_the_same(cluster: None, source: str) -> None:
    here = convert_here(source, "here/", TO, rejects="here.jsonl")
    there = convert(source, "there/", TO, rejects="there.jsonl", jobs=2)
    assert asdict(there) == asdict(here)
    assert here.refused and here.lossy
    assert files("there") == files("here")
    assert Path("there.jsonl").read_bytes() == Path("here.jsonl").read_bytes()


def test_one_file_is_the_same(cluster: None, source: str) -> None:
    convert_here(source, "here.parquet", TO)
    convert(source, "there.parquet", TO)
    assert Path("there.parquet").read_bytes() == Path("here.parquet").read_bytes()


def test_what_goes_wrong_there_is_said_here(cluster: None, source: str) -> None:
    with pytest.raises(LossError) as here:
        convert_here(source, "out/", TO, on_loss="fail")
    with pytest.raises(LossError) as there:
        convert(source, "out/", TO, on_loss="fail")
    assert (there.value.code, there.value.place) == (here.value.code, here.value.place)
    Path("in", "e.jsonl.gz").write_bytes(b"\x1f\x8bjunk")
    with pytest.raises(CodecError, match=r"e\.jsonl\.gz': .*\n\d+ rows are done"):
        convert(source, "out/", TO)
    assert not Path("out").exists()
    Path("in", "e.jsonl.gz").unlink()
    with pytest.raises(CodecError, match="files differs"):
        convert(source, "out/", TO, resume=True)
