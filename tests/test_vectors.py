"""The render vectors: text, generation spans and refusals are the template's own; and the text gives the conversation back."""

from collections import Counter

import pytest

import chatcodec
from conformance import Case, options, vectors

formats = pytest.mark.parametrize("name", chatcodec.list_formats())


def _rendered(vector: Case) -> chatcodec.Rendered:
    fmt = chatcodec.get_format(vector["format"])
    return fmt.render(vector["messages"], tools=vector["tools"], **options(vector))


def _verdict(vector: Case) -> str | None:
    """What is wrong with how a vector renders; None if nothing is."""
    expect, ill_typed = vector["expect"], "ill_typed" in vector
    try:
        rendered = _rendered(vector)
    except chatcodec.RenderError as error:
        if ill_typed:
            return None
        if "text" in expect:
            return f"refused: {error}"
        return None if expect["error_kind"] != "template_error" or error.reason == expect["error"] else f"reason {error.reason!r}"
    if "text" not in expect:
        return "rendered where the template fails"
    if rendered.text != expect["text"]:
        return "another text"
    return None if [list(span) for span in rendered.generation_spans] == expect["generation_spans"] else "other generation spans"


@formats
def test_the_text_is_the_templates(name: str) -> None:
    assert len(vectors(name)) > 400
    wrong = [f"{vector['id']}: {verdict}" for vector in vectors(name) if (verdict := _verdict(vector))]
    assert wrong == []


@formats
def test_spans_cover_the_text_and_losses_can_be_named(name: str) -> None:
    for vector in vectors(name):
        if "text" in vector["expect"] and "ill_typed" not in vector:
            rendered = _rendered(vector)
            assert "".join(rendered.text[span.start : span.end] for span in rendered.spans) == rendered.text, vector["id"]
            assert all(one.end == other.start for one, other in zip(rendered.spans, rendered.spans[1:], strict=False)), vector["id"]
            assert len(rendered.sampled_spans) == sum(message["role"] == "assistant" for message in vector["messages"]), vector["id"]
            assert all(loss.code in chatcodec.errors.LOSSES for loss in rendered.losses), vector["id"]


@formats
def test_parse_prompt_gives_back_what_renders_to_the_same_text(name: str) -> None:
    """But for texts whose own content forges control text, which is named as a loss of the first rendering."""
    fmt, outcomes = chatcodec.get_format(name), Counter[str]()
    for vector in vectors(name):
        text = vector["expect"].get("text")
        if text is None or "ill_typed" in vector:
            continue
        try:
            found = fmt.parse_prompt(text)
            same = fmt.render(found.messages, tools=found.tools, **found.options).text == text
        except chatcodec.ParseError:
            same = False
        forged = any(loss.code.startswith("control_token") for loss in _rendered(vector).losses)
        assert same or forged, vector["id"]
        outcomes["same" if same else "forged"] += 1
    assert outcomes["forged"] <= 2, outcomes
    assert outcomes["same"] > 300
