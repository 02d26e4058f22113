"""Every example runs, and so does the code of the README."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path) -> None:
    ran = subprocess.run([sys.executable, "-W", "error", str(path)], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.strip()
    assert not ran.stderr


def test_the_code_of_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        subprocess.run([sys.executable, "-W", "error", "-c", block], capture_output=True, text=True, check=True, cwd=ROOT)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3
