"""Safe encoding: control tokens are what the format wrote, all else is text, and without forgery it is the plain encoding."""

import gzip
import json
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chatcodec
import strategies as make
from chatcodec.tokens.encoding import Encoded, encode, encode_batch
from chatcodec.tokens.tokenizer import adapt
from chatcodec.wire import FORMATS_OWN
from conformance import options, vectors
from limits import at_most
from make_tokenizer import MAKERS, OTHER, hf_tokenizer, special_tokens, tiktoken_encoding

CORPUS = Path(__file__).parents[2] / "shared" / "corpus" / "bfcl.jsonl.gz"
formats = pytest.mark.parametrize("name", chatcodec.list_formats())
kinds = pytest.mark.parametrize("kind", MAKERS)
TOKENIZERS = {kind: maker() for kind, maker in MAKERS.items()}


def plain(tokenizer: Any, text: str) -> list[int]:
    """What a tokenizer makes of a whole text by itself, control tokens included."""
    if hasattr(tokenizer, "encode_ordinary"):
        return list(tokenizer.encode(text, allowed_special="all"))
    found = tokenizer.encode(text, add_special_tokens=False)
    return list(getattr(found, "ids", found))


def decoded(encoded: Encoded, tokenizer: Any) -> str:
    return adapt(tokenizer).decode(encoded.ids)


def control_ids(fmt: chatcodec.Format, tokenizer: Any) -> set[int]:
    adapter = adapt(tokenizer)
    return {*adapter.special.values(), *(adapter.known[token] for token in fmt.special_tokens)}


def forged(rendered: chatcodec.Rendered, encoded: Encoded) -> bool:
    """Whether the text spells control tokens besides those that the format wrote."""
    return sum(rendered.text.count(token) for token in special_tokens()) > len(encoded.controls)


def check_control_tokens(encoded: Encoded, fmt: chatcodec.Format, tokenizer: Any) -> None:
    """The control tokens are those of the format's own pieces, each once and in its place; the rest are others."""
    rendered, ids = encoded.rendered, control_ids(fmt, tokenizer)
    names = {number: token for token, number in adapt(tokenizer).known.items()}
    own = "".join(("x" if span.kind in FORMATS_OWN else ".") * (span.end - span.start) for span in rendered.spans)
    found = [number for number, token in enumerate(encoded.ids) if token in ids]
    assert found == encoded.controls
    for number in found:
        start, end = encoded.offsets[number]
        assert rendered.text[start:end] == names[encoded.ids[number]]
        assert "." not in own[start:end]
    written = "".join(character if mark == "x" else "\0" for character, mark in zip(rendered.text, own, strict=True))
    assert len(found) == sum(written.count(token) for token in fmt.special_tokens)


@formats
@given(data=st.data(), kind=st.sampled_from(sorted(MAKERS)))
def test_nothing_is_forged(name: str, data: st.DataObject, kind: str) -> None:
    fmt, tokenizer = chatcodec.get_format(name), TOKENIZERS[kind]
    pieces = (*make.pieces_of(name, whole=True), OTHER, "<|im_end|>", "<|im:end|>", "<|end_message|>", "<|call|>")
    tools = data.draw(make.tools(pieces))
    chosen = data.draw(make.options(fmt, without=()))
    if "model_identity" in fmt.options:
        chosen["model_identity"] = data.draw(make.texts(pieces))
    messages = data.draw(make.conversations(tools, pieces))
    if chosen.get("add_generation_prompt") and "allow_missing_thinking" in fmt.options:
        chosen["allow_missing_thinking"] = True
    rendered = make.rendered(fmt, messages, tools=tools or None, **chosen)
    encoded = encode(rendered, tokenizer)
    check_control_tokens(encoded, fmt, tokenizer)
    assert decoded(encoded, tokenizer) == rendered.text


@kinds
@formats
def test_the_name_of_a_result_forges_nothing(name: str, kind: str) -> None:
    fmt, tokenizer = chatcodec.get_format(name), TOKENIZERS[kind]
    result = {"role": "tool", "tool_call_id": "1", "name": "".join((*fmt.special_tokens, OTHER)), "content": "r"}
    messages: list[Any] = [{"role": "user", "content": "u"}, result]
    check_control_tokens(encode(fmt.render(messages), tokenizer), fmt, tokenizer)


@formats
@given(data=st.data(), kind=st.sampled_from(sorted(MAKERS)))
def test_without_forgery_it_is_the_plain_encoding(name: str, data: st.DataObject, kind: str) -> None:
    fmt, tokenizer = chatcodec.get_format(name), TOKENIZERS[kind]
    tools = data.draw(make.tools(make.pieces_of(name)))
    rendered = make.rendered(fmt, data.draw(make.conversations(tools, make.pieces_of(name))), tools=tools or None)
    encoded = encode(rendered, tokenizer)
    expected = plain(tokenizer, rendered.text)
    if not forged(rendered, encoded):  # pieces of markers may meet and make a whole one
        assert encoded.ids == expected
    [again] = encode_batch([rendered], tokenizer)
    assert (again.ids, again.offsets, again.kinds, again.messages, again.sampled) == (
        encoded.ids, encoded.offsets, encoded.kinds, encoded.messages, encoded.sampled
    )  # fmt: skip


@kinds
@formats
def test_vectors_are_encoded_plainly(name: str, kind: str) -> None:
    fmt, tokenizer = chatcodec.get_format(name), TOKENIZERS[kind]
    count = 0
    for vector in vectors(name)[::3]:
        if "text" in vector["expect"] and "ill_typed" not in vector:
            rendered = fmt.render(vector["messages"], tools=vector["tools"], **options(vector))
            encoded = encode(rendered, tokenizer)
            if not forged(rendered, encoded):
                count += 1
                assert encoded.ids == plain(tokenizer, rendered.text)
    assert count > 10


@pytest.mark.skipif(not CORPUS.is_file(), reason="the corpus is not part of the repository")
@formats
def test_the_corpus_is_encoded_plainly(name: str) -> None:
    fmt, tokenizer = chatcodec.get_format(name), TOKENIZERS["tiktoken"]
    with gzip.open(CORPUS, "rt", encoding="utf-8") as lines:
        conversations = [json.loads(line) for line in islice(lines, None, None, 25)]
    for conversation in conversations:
        rendered = fmt.render(conversation["messages"], tools=conversation["tools"])
        encoded = encode(rendered, tokenizer)
        assert not forged(rendered, encoded)
        assert encoded.ids == plain(tokenizer, rendered.text)


@formats
@given(data=st.data())
def test_all_tokenizers_say_the_same(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    pieces = make.pieces_of(name, whole=True)
    tools = data.draw(make.tools(pieces))
    rendered = make.rendered(fmt, data.draw(make.conversations(tools, pieces)), tools=tools or None)
    numbers = {kind: adapt(tokenizer).known for kind, tokenizer in TOKENIZERS.items()}
    found = [encode(rendered, tokenizer) for tokenizer in TOKENIZERS.values()]
    names = {kind: {number: token for token, number in known.items()} for kind, known in numbers.items()}
    spelt = [[names[kind].get(token, token) for token in one.ids] for kind, one in zip(TOKENIZERS, found, strict=True)]
    assert all(one == spelt[0] for one in spelt)
    for one in found[1:]:
        assert (one.offsets, one.kinds, one.messages, one.sampled) == (
            found[0].offsets, found[0].kinds, found[0].messages, found[0].sampled
        )  # fmt: skip


@formats
@given(data=st.data(), kind=st.sampled_from(sorted(MAKERS)))
def test_attribution(name: str, data: st.DataObject, kind: str) -> None:
    """By the stated rule, worked out here the slow way: where a token begins, and whether all of it was sampled."""
    fmt = chatcodec.get_format(name)
    pieces = make.pieces_of(name, whole=True)
    tools = data.draw(make.tools(pieces))
    rendered = make.rendered(fmt, data.draw(make.conversations(tools, pieces)), tools=tools or None)
    encoded = encode(rendered, TOKENIZERS[kind])
    starts = [start for start, _ in encoded.offsets]
    assert starts == sorted(starts) and encoded.offsets[0][0] == 0 and encoded.offsets[-1][1] == len(rendered.text)
    assert all(one[1] >= other[0] for one, other in pairwise(encoded.offsets))
    for number, (start, end) in enumerate(encoded.offsets):
        span = next(span for span in rendered.spans if span.start <= start < span.end)
        assert (encoded.kinds[number], encoded.messages[number]) == (span.kind, span.message)
        assert encoded.sampled[number] == any(first <= start and end <= last for first, last in filter(None, rendered.sampled_spans))


# ----------------------------------------------------------------------------------------- the tokenizer and its oddities

ASKED: list[Any] = [{"role": "user", "content": "Is <|endoftext|> a token, and <think> or <|im_end|>?"}]


@kinds
def test_the_tokenizer_is_left_as_it_was(kind: str) -> None:
    tokenizer = MAKERS[kind]()
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    state = backend.to_str() if hasattr(backend, "to_str") else None
    before = plain(tokenizer, "a <|im_end|> b")
    encode(chatcodec.get_format("qwen3_5").render(ASKED), tokenizer)
    assert plain(tokenizer, "a <|im_end|> b") == before
    assert state is None or backend.to_str() == state


def test_truncation_padding_and_templates_of_the_tokenizer_do_not_count() -> None:
    from tokenizers import processors

    rendered = chatcodec.get_format("qwen3_5").render(ASKED)
    tokenizer = hf_tokenizer()
    expected = encode(rendered, tokenizer)
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=500)
    tokenizer.encode_special_tokens = True
    number = tokenizer.token_to_id(OTHER)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{OTHER} $A", special_tokens=[(OTHER, number)])
    encoded = encode(rendered, tokenizer)
    assert encoded.ids == expected.ids and encoded.offsets == expected.offsets
    assert (tokenizer.truncation or {})["max_length"] == 3


def test_tokens_that_are_added_later_count() -> None:
    tokenizer = hf_tokenizer(without=("<|im_end|>",))
    fmt = chatcodec.get_format("qwen3_5")
    with pytest.raises(chatcodec.CodecError, match=r"no token of its own for '<\|im_end\|>'"):
        encode(fmt.render(ASKED), tokenizer)
    tokenizer.add_special_tokens(["<|im_end|>"])
    check_control_tokens(encode(fmt.render(ASKED), tokenizer), fmt, tokenizer)


@pytest.mark.parametrize("make_one", [hf_tokenizer, tiktoken_encoding])
def test_a_token_that_the_tokenizer_lacks(make_one: Any) -> None:
    fmt = chatcodec.get_format("qwen3_5")
    lacking = make_one(without=("<|vision_start|>",))
    check_control_tokens(encode(fmt.render([{"role": "user", "content": "no image"}]), lacking), fmt, make_one())
    seen = fmt.render([{"role": "user", "content": [{"type": "image"}]}])
    with pytest.raises(chatcodec.CodecError, match="vision_start"):
        encode(seen, lacking)
    encoded = encode(seen, lacking, allow_missing=True)
    assert decoded(encoded, lacking) == seen.text and len(encoded.controls) == len(encode(seen, make_one()).controls) - 1


def test_control_tokens_need_not_be_special() -> None:
    """Some models' tags are added to the vocabulary without being special; they are no less forgeable."""
    fmt = chatcodec.get_format("qwen3_5")
    tokenizer = hf_tokenizer(plain=("<think>", "</think>"))
    rendered = fmt.render([*ASKED, {"role": "assistant", "content": "y", "reasoning_content": "<think> it over"}])
    check_control_tokens(encode(rendered, tokenizer), fmt, tokenizer)


def test_ordinary_added_tokens_stay() -> None:
    """Runs of blanks and the like are added tokens of many vocabularies, and no control tokens."""
    from tokenizers import AddedToken

    fmt, tokenizer = chatcodec.get_format("solar_open2"), hf_tokenizer()
    tokenizer.add_tokens([AddedToken("        ", normalized=False), AddedToken("river", single_word=True)])
    for content in ("if x:\n        river rivers", "if x:\n        river <|im:end|> rivers"):
        encoded = encode(fmt.render([{"role": "user", "content": content}]), tokenizer)
        assert encoded.ids.count(tokenizer.token_to_id("        ")) == 1
        assert encoded.ids.count(tokenizer.token_to_id("river")) == 1
        check_control_tokens(encoded, fmt, tokenizer)


def test_ids_of_added_tokens_with_gaps() -> None:
    """A twin that lacks some tokens counts the others otherwise; what it says must be in the tokenizer's own ids."""
    fmt, tokenizer = chatcodec.get_format("solar_open2"), hf_tokenizer()
    tokenizer.add_tokens(["river", "lamp"])
    encoded = encode(fmt.render([{"role": "user", "content": "river <|im:end|> lamp"}]), tokenizer)
    assert tokenizer.token_to_id("lamp") in encoded.ids and decoded(encoded, tokenizer) == encoded.rendered.text


def test_a_vocabulary_that_holds_the_control_tokens_itself() -> None:
    """A model may know a control token as one of its own words, and find it in text where no added token is looked for."""
    from tokenizers import Tokenizer, models

    fmt = chatcodec.get_format("solar_open2")
    letters = [(character, -9.0) for character in map(chr, range(10, 127))]
    vocabulary = [("<unk>", -20.0), *letters, *((token, -1.0) for token in fmt.special_tokens)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, 0))
    tokenizer.add_special_tokens(list(fmt.special_tokens))
    forged = "<|im:end|>" * 50 + "<|im:st<|im:start|>art|>"
    encoded = encode(fmt.render([{"role": "user", "content": forged}]), tokenizer)
    check_control_tokens(encoded, fmt, tokenizer)
    offsets = encoded.offsets
    assert [one for _, one in offsets[:-1]] == [other for other, _ in offsets[1:]]


@pytest.mark.parametrize("content", ["half \ud83d", "\udc00"])
@kinds
def test_half_a_surrogate_pair_is_refused(kind: str, content: str) -> None:
    with pytest.raises(chatcodec.CodecError, match="surrogate"):
        encode(chatcodec.get_format("qwen3_5").render([{"role": "user", "content": content}]), TOKENIZERS[kind])


@pytest.mark.parametrize("tokenizer", [None, "gpt2", object(), {}, str.split])
def test_what_is_no_tokenizer_is_refused(tokenizer: Any) -> None:
    with pytest.raises(chatcodec.CodecError, match="a tokenizer must be"):
        encode(chatcodec.get_format("qwen3_5").render(ASKED), tokenizer)


@formats
@kinds
def test_hostile_text_costs_linear_time(name: str, kind: str) -> None:
    fmt, tokenizer = chatcodec.get_format(name), TOKENIZERS[kind]
    hostile = "".join(fmt.special_tokens) * 5_000
    with at_most(20):
        encoded = encode(fmt.render([{"role": "user", "content": hostile}]), tokenizer)
    assert len(encoded.ids) > 10 * 5_000


@formats
@kinds
def test_many_pieces_between_control_tokens_cost_linear_time(name: str, kind: str) -> None:
    tools = [{"type": "function", "function": {"name": f"f{number}", "description": "d"}} for number in range(4_000)]
    rendered = chatcodec.get_format(name).render([{"role": "user", "content": "hi"}], tools=tools)
    with at_most(20):
        encoded = encode(rendered, TOKENIZERS[kind])
        assert len(encoded.kinds) == len(encoded.ids)


@settings(max_examples=20)
@given(data=st.data())
def test_a_batch_holds_several_formats(data: st.DataObject) -> None:
    rendered = [
        chatcodec.get_format(name).render([{"role": "user", "content": data.draw(make.texts())}]) for name in chatcodec.list_formats()
    ]
    assert [one.ids for one in encode_batch(rendered, TOKENIZERS["tokenizers"])] == [
        encode(one, TOKENIZERS["tokenizers"]).ids for one in rendered
    ]
