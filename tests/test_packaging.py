"""What is installed works: a wheel and an sdist carry the grammars, and a checkout can be installed."""

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import chatcodec

ROOT = Path(__file__).parents[1]
TRY = "import chatcodec; print([chatcodec.get_format(name).parse('hello').message.role for name in chatcodec.list_formats()])"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)], check=True, capture_output=True)
    return folder


def test_the_wheel_has_the_grammars_and_the_types(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for name in chatcodec.list_formats():
        assert f"chatcodec/grammars/{name}.lark" in names
        assert f"chatcodec/formats/{name}.py" in names
    assert "chatcodec/py.typed" in names
    assert not [name for name in names if name.startswith(("tests", "codecs", "benchmarks"))]


def test_the_sdist_has_what_the_tests_need(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in chatcodec.list_formats():
        assert {f"grammars/{name}.lark", f"tests/vectors/{name}.jsonl", f"tests/vectors/cases/{name}.jsonl"} <= names
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "benchmarks/__main__.py"} <= names


def test_the_wheel_works_outside_the_checkout(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")), encoding="utf-8")
    ran = subprocess.run([python, "-c", TRY + "; print(chatcodec.__file__)"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith(str(["assistant"] * len(chatcodec.list_formats())))
    assert str(site) in ran.stdout
