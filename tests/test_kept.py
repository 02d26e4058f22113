"""Results that are kept: by content, whatever the object; equal numbers of other types are other content; no more than a few."""

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given

from chatcodec.kept import KEPT, KEPT_SIZE, kept_by_content, kept_by_text
from chatcodec.testing import json_values


def _counted() -> tuple[Any, list[Any]]:
    asked: list[Any] = []

    def find(value: Mapping[str, Any]) -> str:
        asked.append(value)
        return repr(value)

    return kept_by_content(find), asked


@given(one=json_values(), other=json_values())
def test_what_is_found_is_that_of_the_value_itself(one: Any, other: Any) -> None:
    found, _ = _counted()
    for value in (one, other, [one, other], [one, one], one):
        assert found({"a": value}) == repr({"a": value})


def test_equal_numbers_of_other_types_are_other_values() -> None:
    found, asked = _counted()
    values: list[Any] = [1, 1.0, True, 0.0, -0.0, "1", None]
    assert [found({"a": value}) for value in values] == [repr({"a": value}) for value in values]
    assert len(asked) == len(values)


def test_equal_values_are_found_once_and_changed_ones_again() -> None:
    found, asked = _counted()
    tool: dict[str, Any] = {"name": "f" * 3, "parameters": {"type": "object"}}
    assert found(tool) == found({"name": "fff", "parameters": {"type": "object"}})
    assert len(asked) == 1
    tool["parameters"]["type"] = "string"
    assert "string" in found(tool) and len(asked) == 2


@pytest.mark.parametrize(
    "value", [ChainMap({"a": 1}), {"a": ChainMap()}, {"a": "x" * KEPT_SIZE}, {"a": object()}], ids=["mapping", "inner", "large", "odd"]
)
def test_other_mappings_and_large_values_are_not_kept(value: Any) -> None:
    found, asked = _counted()
    assert found(value) == found(value) == repr(value)
    assert len(asked) == 2


def test_deep_values_are_not_kept() -> None:
    found, asked = _counted()
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    for _ in range(2):
        with pytest.raises(RecursionError):
            found(deep)
    assert len(asked) == 2
    while deep:  # Python's own way to be rid of it would recurse
        deep = deep.pop("a")


def test_texts() -> None:
    asked: list[str] = []
    found = kept_by_text(lambda text: asked.append(text) or len(text))  # type: ignore[func-returns-value]
    long = "x" * (KEPT_SIZE + 1)
    assert [found(text) for text in ("a", "a", long, long)] == [1, 1, len(long), len(long)]
    assert asked == ["a", long, long]
    for number in range(KEPT):
        found(str(number))
    assert found("a") == 1 and asked[-1] == "a"  # those that were not asked for in a long time are forgotten
