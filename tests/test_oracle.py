"""Law 6, live: `render` is the chat template, on thousands of generated conversations.

The reference is a folder `shared/oracle` beside the project root: the templates, and what runs them.  Where it is absent
these tests are skipped, unless `CHATCODEC_REQUIRE_ORACLE` is set; the vectors hold the law everywhere.
"""

import importlib.util
import os
import sys
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import chatcodec
import strategies as make

ORACLE = Path(__file__).resolve().parents[2] / "shared" / "oracle"
SEED, CASES = "live", 2_500
NOW = "2027-02-28T23:59:58"

formats = pytest.mark.parametrize("name", chatcodec.list_formats())


@cache
def _reference() -> Any:
    """The reference's generator, with the two modules that it imports by their bare names."""
    for module in ("oracle", "typed", "generate"):
        spec = importlib.util.spec_from_file_location(module, ORACLE / f"{module}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])
    return sys.modules["generate"]


def _reference_for(name: str) -> Any:
    if not (ORACLE / "oracle.py").is_file():
        reason = "the reference templates are not at hand: there is no shared/oracle beside the project root"
        if os.environ.get("CHATCODEC_REQUIRE_ORACLE"):
            pytest.fail(reason)
        pytest.skip(reason)
    reference = _reference()
    if name not in reference.FORMATS:
        pytest.skip(f"the reference has no template of {name}")
    return reference


def _differences(case: dict[str, Any]) -> Iterator[str]:
    """Where the codec and the reference part over a case that holds what the reference makes of it."""
    fmt, expect = chatcodec.get_format(case["format"]), case["expect"]
    clock = {"now": datetime.fromisoformat(case["now"])} if "now" in fmt.options else {}
    try:
        rendered = fmt.render(case["messages"], tools=case["tools"], **case["kwargs"], **clock)
    except chatcodec.RenderError as error:
        if "error" not in expect and "ill_typed" not in case:
            yield f"refused: {error}"
        elif expect.get("error_kind") == "template_error" and "ill_typed" not in case and error.reason != expect["error"]:
            yield f"refused with {error.reason!r} where the template says {expect['error']!r}"
        return
    if "error" in expect:
        if "ill_typed" not in case:
            yield f"rendered where the template fails: {expect['error']}"
    elif rendered.text != expect["text"]:
        place = next((index for index, (ours, theirs) in enumerate(zip(rendered.text, expect["text"], strict=False)) if ours != theirs), -1)
        yield f"differs at {place}: {rendered.text[place : place + 60]!r} where the template has {expect['text'][place : place + 60]!r}"
    elif [list(span) for span in rendered.generation_spans] != expect["generation_spans"]:
        yield f"generation spans {rendered.generation_spans} where the template has {expect['generation_spans']}"


@formats
def test_generated_cases(name: str) -> None:
    reference = _reference_for(name)
    cases = list(reference.cases(name, SEED, CASES))
    assert len(cases) >= 2_000
    found = [f"{case['id']} {difference}" for case in map(reference.vector, cases) for difference in _differences(case)]
    assert not found, f"{len(found)} of {len(cases)} cases:\n" + "\n".join(found[:10])


@formats
@given(data=st.data())
def test_drawn_conversations(name: str, data: st.DataObject) -> None:
    reference = _reference_for(name)
    pieces = make.pieces_of(name, whole=True)
    tools = data.draw(make.tools(pieces))
    case = {
        "format": name,
        "now": NOW,
        "messages": data.draw(make.conversations(tools, pieces)),
        "tools": tools or None,
        "kwargs": data.draw(make.options(chatcodec.get_format(name), without=("now",))),
    }
    assert list(_differences(reference.vector(case))) == []
