"""Loss masks: what the cases say, and what the spans say for every conversation."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import chatcodec
import strategies as make
from chatcodec.tokens.encoding import encode
from chatcodec.tokens.masks import IGNORED, KINDS, AssistantMask, assistant_mask, mask_of
from chatcodec.tokens.tokenizer import adapt
from conformance import Case, all_cases
from make_tokenizer import MAKERS

formats = pytest.mark.parametrize("name", chatcodec.list_formats())
kinds = pytest.mark.parametrize("kind", MAKERS)
TOKENIZERS = {kind: maker() for kind, maker in MAKERS.items()}


def trained(mask: AssistantMask, tokenizer: Any) -> list[str]:
    """The texts that are trained on, one for each run of tokens."""
    runs: list[list[int]] = [[]]
    for token, on in zip(mask.ids, mask, strict=True):
        if on:
            runs[-1].append(token)
        elif runs[-1]:
            runs.append([])
    return [adapt(tokenizer).decode(run) for run in runs if run]


@kinds
@pytest.mark.parametrize("case", all_cases("mask"), ids=lambda case: case["id"])
def test_the_cases(case: Case, kind: str) -> None:
    fmt, given, expect, tokenizer = chatcodec.get_format(case["format"]), case["input"], case["expect"], TOKENIZERS[kind]
    rendered = fmt.render(given["messages"], tools=given["tools"], **given["kwargs"])
    assert rendered.text == expect["text"]
    sampled = assistant_mask(rendered, tokenizer)
    assert trained(sampled, tokenizer) == [text for text in expect["trained_sampled"] if text is not None], case["why"]
    assert list(sampled.left_out) == [number for number, text in enumerate(expect["trained_sampled"]) if text is None]
    if "trained_template" in expect:
        assert trained(assistant_mask(rendered, tokenizer, which="template"), tokenizer) == expect["trained_template"], case["why"]


@formats
@given(data=st.data(), kind=st.sampled_from(sorted(MAKERS)))
def test_a_mask_is_what_lies_in_its_spans(name: str, data: st.DataObject, kind: str) -> None:
    fmt, tokenizer = chatcodec.get_format(name), TOKENIZERS[kind]
    tools = data.draw(make.tools(make.pieces_of(name, whole=True)))
    chosen = data.draw(make.options(fmt))
    rendered = make.rendered(fmt, data.draw(make.conversations(tools, make.pieces_of(name, whole=True))), tools=tools or None, **chosen)
    encoded = encode(rendered, tokenizer)
    count = len(rendered.sampled_spans)
    turns: Any = data.draw(st.sampled_from(("all", "last")) | (st.lists(st.integers(-count, count - 1)) if count else st.just([])))
    wanted = data.draw(st.none() | st.sets(st.sampled_from(sorted(KINDS))))
    chosen_turns = range(count) if turns == "all" else [count - 1][: count or None] if turns == "last" else [turn % count for turn in turns]
    asked = sorted(set(chosen_turns)) if count else []
    mask = mask_of(encoded, turns=turns, kinds=wanted)
    assert mask.left_out == tuple(turn for turn in asked if rendered.sampled_spans[turn] is None)
    letters = [False] * len(rendered.text)
    for turn in asked:
        for span in rendered.spans:
            extent = rendered.sampled_spans[turn]
            if extent is not None and (wanted is None or span.kind in wanted):
                for place in range(max(span.start, extent[0]), min(span.end, extent[1])):
                    letters[place] = True
    assert list(mask) == [int(all(letters[start:end])) for start, end in encoded.offsets]
    assert mask.labels == [token if on else IGNORED for token, on in zip(encoded.ids, mask, strict=True)]
    if turns == "all" and wanted is None:
        assert list(map(bool, mask)) == encoded.sampled


@formats
@given(data=st.data())
def test_the_templates_own_mask(name: str, data: st.DataObject) -> None:
    fmt, tokenizer = chatcodec.get_format(name), TOKENIZERS["tiktoken"]
    tools = data.draw(make.tools())
    rendered = make.rendered(fmt, data.draw(make.conversations(tools, end="assistant")), tools=tools or None)
    if not rendered.generation_spans:
        with pytest.raises(chatcodec.CodecError, match="no generation blocks"):
            assistant_mask(rendered, tokenizer, which="template")
        return
    mask = assistant_mask(rendered, tokenizer, which="template")
    assert "".join(trained(mask, tokenizer)) == "".join(rendered.text[slice(*span)] for span in rendered.generation_spans)
    assert mask.left_out == ()


ASKED: list[Any] = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "c", "reasoning_content": "r"}]


@formats
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"which": "templat"}, "did you mean 'template'"),
        ({"turns": "first"}, "turns must be"),
        ({"turns": 0}, "turns must be"),
        ({"turns": [1]}, "no assistant turn 1; there are 1"),
        ({"turns": [True]}, "no assistant turn True"),
        ({"turns": ["0"]}, "no assistant turn '0'"),
        ({"kinds": "content"}, "must be a set"),
        ({"kinds": {"contents"}}, "did you mean 'content'"),
    ],
)
def test_what_is_asked_wrongly(name: str, given: dict[str, Any], words: str) -> None:
    with pytest.raises(chatcodec.CodecError, match=words):
        assistant_mask(chatcodec.get_format(name).render(ASKED), TOKENIZERS["tiktoken"], **given)


@formats
def test_a_conversation_without_a_turn_trains_nothing(name: str) -> None:
    mask = assistant_mask(chatcodec.get_format(name).render(ASKED[:1]), TOKENIZERS["tiktoken"], turns="last")
    assert not any(mask) and mask.left_out == () and len(mask) == len(mask.ids)
