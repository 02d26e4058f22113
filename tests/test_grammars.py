"""Grammars compile to the automata that were reviewed, and bad ones are refused with file and rule.

`golden/NAME.txt` lists each automaton state by state: which markers are allowed, what they end, where they lead.  When a
grammar changes, `CHATCODEC_WRITE_GOLDEN=1 pytest tests/test_grammars.py` writes it anew; read the difference before you commit it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import chatcodec
from chatcodec import grammar

GOLDEN = Path(__file__).parent / "golden"
formats = pytest.mark.parametrize("name", chatcodec.list_formats())


def starts(name: str) -> list[str]:
    return [*sorted({start for _, start in chatcodec.get_format(name).starts}), "prompt"]


@formats
def test_the_automata_are_the_reviewed_ones(name: str) -> None:
    text = "".join(f"== {start}\n{grammar.describe(grammar.compile_tables(name, start))}\n" for start in starts(name))
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("CHATCODEC_WRITE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@formats
def test_automata_stay_small(name: str) -> None:
    for start in starts(name):
        assert len(grammar.compile_tables(name, start).states) <= 340, start


@formats
def test_every_marker_is_written_once(name: str) -> None:
    """Two terminals with one spelling are one marker, but where a name has to tell which it is."""
    literals = [text for terminal, text in grammar.markers(name).items() if not terminal.endswith("_IF_KNOWN")]
    assert sorted({text for text in literals if literals.count(text) > 1 and len(text) > 2}) == []


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of grammars of its own."""
    monkeypatch.setattr(grammar, "directory", lambda: tmp_path)
    grammar._source.cache_clear()
    grammar.markers.cache_clear()
    yield tmp_path
    grammar._source.cache_clear()
    grammar.markers.cache_clear()


BAD = {
    "ambiguous": ('%declare CONTENT\nprompt: a | b\na: "x" CONTENT\nb: "x" CONTENT\nX: "x"', "collision"),
    "shift and reduce": ('%declare CONTENT\nprompt: a A | A A CONTENT\na: A\nA: "x"', "conflict"),
    "an unknown run": ('%declare SPEECH\nprompt: SPEECH A\nA: "x"', "SPEECH"),
    "one run after another": (
        '%declare CONTENT REASONING\nprompt: CONTENT REASONING A\nA: "x"',
        "CONTENT and REASONING may stand at the same place",
    ),
    "two runs at one place": ('%declare CONTENT REASONING\nprompt: CONTENT A | REASONING B\nA: "x"\nB: "y"', "CONTENT and REASONING"),
    "nesting": ('%declare CONTENT\nprompt: A prompt B | CONTENT\nA: "x"\nB: "y"', "nests"),
    "a pattern": ("%declare CONTENT\nprompt: CONTENT A\nA: /x+/", "plain string"),
    "two markers with one spelling": ('%declare CONTENT\nprompt: A CONTENT | B\nA: "x"\nB: "x"', "both 'x'"),
    "no grammar at all": ("prompt: ((", "bad.lark"),
    "no such rule": ('start: A\nA: "x"', "prompt"),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_grammars_are_refused(fault: str, written: Path) -> None:
    text, told = BAD[fault]
    (written / "bad.lark").write_text(text, encoding="utf-8")
    with pytest.raises(grammar.GrammarError) as refused:
        grammar.markers("bad")
        grammar.compile_tables("bad", "prompt")
    assert told in str(refused.value)
    assert "bad.lark" in str(refused.value)


def test_a_missing_grammar_is_named(written: Path) -> None:
    with pytest.raises(grammar.GrammarError, match=r"none\.lark"):
        grammar.markers("none")


def test_interegular_does_not_slow_the_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lark would check its own terminals for collisions wherever that package is installed, as it is beside most engines."""
    import interegular
    from lark import lexer, load_grammar

    def fail(*_: object) -> None:
        raise AssertionError("the terminals of Lark's own grammar are compared")

    monkeypatch.delattr(load_grammar._get_parser, "cache", raising=False)
    monkeypatch.setattr(interegular.Comparator, "from_regexes", fail)
    grammar._source.__wrapped__("solar_open2")
    assert lexer.has_interegular
