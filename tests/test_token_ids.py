"""Completions as token ids: control tokens count by their id only, characters that are cut wait, nothing else changes."""

import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chatcodec
import strategies as make
from make_tokenizer import OTHER, hf_tokenizer, tiktoken_encoding, transformers_tokenizer

formats = pytest.mark.parametrize("name", chatcodec.list_formats())


class Bytewise:
    """The least that a tokenizer must do: a token for each byte, and one for each control token but those left out."""

    def __init__(self, *, without: Sequence[str] = ()) -> None:
        tokens = {token for name in chatcodec.list_formats() for token in chatcodec.get_format(name).special_tokens}
        self.controls = {token: 256 + number for number, token in enumerate(sorted(tokens.difference(without)))}
        self.spelt = {number: token.encode() for token, number in self.controls.items()}

    def token_to_id(self, token: str) -> int | None:
        return self.controls.get(token)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return b"".join(self.spelt.get(number) or bytes([number]) for number in ids).decode("utf-8", "replace")

    def encode(self, text: str) -> list[int]:
        """The ids of a text whose control tokens are meant."""
        ids: list[int] = []
        while text:
            token = next((token for token in self.controls if text.startswith(token)), None)
            ids += [self.controls[token]] if token else text[0].encode("utf-8", "replace")
            text = text[len(token or "x") :]
        return ids


BYTEWISE = Bytewise()
HF = hf_tokenizer()
TIKTOKEN = tiktoken_encoding()
#: Every kind of tokenizer, with a way from text, whose control tokens are meant, to ids.
TOKENIZERS: dict[str, tuple[Any, Any]] = {
    "the least": (BYTEWISE, BYTEWISE.encode),
    "tokenizers": (HF, lambda text: HF.encode(text, add_special_tokens=False).ids),
    "transformers": (transformers_tokenizer(), lambda text: HF.encode(text, add_special_tokens=False).ids),
    "tiktoken": (TIKTOKEN, lambda text: TIKTOKEN.encode(text, allowed_special="all")),
}


def streamed(stream: Any, pieces: Any) -> tuple[list[Any], chatcodec.Reply]:
    events = [event for piece in pieces for event in stream.feed(piece)]
    return events + stream.close("stop"), stream.reply


@formats
@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(max_examples=settings().max_examples // 4)
@given(data=st.data())
def test_ids_say_what_their_text_says(name: str, kind: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    tokenizer, encode = TOKENIZERS[kind]
    made = data.draw(make.canonical(fmt).filter(lambda made: not any("control_token" in loss.code for loss in made.losses)))
    ids = encode(made.text)
    given: dict[str, Any] = {"tools": made.tools, "prompt": made.prompt}
    whole = fmt.parse(made.text, finish_reason="stop", **given)
    assert fmt.parse_ids(ids, tokenizer, finish_reason="stop", **given) == whole
    assert streamed(fmt.stream_ids(tokenizer, **given), ids)[1] == whole


@formats
@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_any_cut_of_the_ids_gives_the_same(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    made = data.draw(make.completions(fmt))
    text = made.text.encode("utf-8", "replace").decode()
    ids = BYTEWISE.encode(text)
    given: dict[str, Any] = {"tools": made.tools, "prompt": made.prompt}
    read = fmt.parse_ids(ids, BYTEWISE, finish_reason="stop", **given)
    assert streamed(fmt.stream_ids(BYTEWISE, **given), ids)[1] == read
    cut = data.draw(st.integers(0, len(ids)))
    assert streamed(fmt.stream_ids(BYTEWISE, **given), [ids[:cut], ids[cut:]])[1] == read
    beginnings = any(each.code in ("unterminated_marker_prefix", "stray_text") for each in fmt.parse(text, **given).diagnostics)
    if not beginnings and "<|content_" not in text:  # what only begins a control token is text, where it came as text
        whole = fmt.parse(text, finish_reason="stop", **given)
        assert (read.message, read.partial, read.finish_reason) == (whole.message, whole.partial, whole.finish_reason)


@formats
def test_a_control_token_in_other_tokens_is_text(name: str) -> None:
    fmt = chatcodec.get_format(name)
    for spelt in fmt.special_tokens:
        content = f"Write {spelt} like this."
        turn = {"role": "assistant", "content": content, "reasoning_content": f"Not {spelt}, I think."}
        rendered = fmt.render([{"role": "user", "content": "Go on."}, {"role": "assistant", "content": "X", "reasoning_content": "Y"}])
        (span,) = rendered.sampled_spans
        assert span is not None
        before, middle, after = rendered.text[slice(*span)].replace("Y", "X").split("X")
        ids = [
            *BYTEWISE.encode(before),
            *turn["reasoning_content"].encode(),
            *BYTEWISE.encode(middle),
            *content.encode(),
            *BYTEWISE.encode(after),
        ]
        reply = fmt.parse_ids(ids, BYTEWISE, finish_reason="stop")
        assert (reply.message.content, reply.message.reasoning_content) == (content, turn["reasoning_content"])
        assert reply.diagnostics == []
        assert streamed(fmt.stream_ids(BYTEWISE), ids)[1] == reply


@formats
def test_what_the_tokenizer_lacks_is_matched_as_text(name: str) -> None:
    fmt = chatcodec.get_format(name)
    plain = Bytewise(without=fmt.special_tokens)
    rendered = fmt.render([{"role": "user", "content": "Go on."}, {"role": "assistant", "content": "A", "reasoning_content": "B"}])
    (span,) = rendered.sampled_spans
    assert span is not None
    text = rendered.text[slice(*span)]
    assert fmt.parse_ids(text.encode(), plain, finish_reason="stop") == fmt.parse(text, finish_reason="stop")


@formats
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_character_that_is_cut_waits_for_its_rest(name: str, kind: str) -> None:
    fmt = chatcodec.get_format(name)
    tokenizer, encode = TOKENIZERS[kind]
    turn = {"role": "assistant", "content": "a𝄞é\ufffd여z", "reasoning_content": "R"}
    rendered = fmt.render([{"role": "user", "content": "Go on."}, turn])
    (span,) = rendered.sampled_spans
    assert span is not None
    events, reply = streamed(fmt.stream_ids(tokenizer), encode(rendered.text[slice(*span)]))
    told = [event.text for event in events if isinstance(event, chatcodec.ContentDelta)]
    assert "".join(told) == reply.message.content == "a𝄞é\ufffd여z"
    assert sum(text.count("\ufffd") for text in told) == 1


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_character_that_never_comes_is_told(kind: str) -> None:
    tokenizer, encode = TOKENIZERS[kind]
    fmt = chatcodec.get_format("solar_open2")
    ids = encode("R<|think:end|>a𝄞")[:-1]
    reply = fmt.parse_ids(ids, tokenizer)
    assert isinstance(reply.message.content, str)
    assert reply.message.content.startswith("a")
    assert reply.message.content.strip("\ufffd") == "a"
    assert streamed(fmt.stream_ids(tokenizer), ids)[1].message == reply.message


@formats
def test_a_stream_of_ids_goes_on_elsewhere(name: str) -> None:
    fmt = chatcodec.get_format(name)
    rendered = fmt.render([{"role": "user", "content": "Go on."}, {"role": "assistant", "content": "a𝄞é", "reasoning_content": "R여"}])
    (span,) = rendered.sampled_spans
    assert span is not None
    for tokenizer, encode in TOKENIZERS.values():
        ids = encode(rendered.text[slice(*span)])
        whole = fmt.parse_ids(ids, tokenizer, finish_reason="stop")
        stream = fmt.stream_ids(tokenizer)
        for cut, number in enumerate(ids):
            for other in (stream.fork(), fmt.resume_ids(stream.to_json(), tokenizer)):
                assert streamed(other, [ids[cut:]])[1] == whole
            stream.feed(number)


def test_a_bytewise_stream_can_be_pickled() -> None:
    fmt = chatcodec.get_format("solar_open2")
    stream = fmt.stream_ids(BYTEWISE)
    stream.feed(BYTEWISE.encode("R<|think:end|>a𝄞")[:-1])
    other = pickle.loads(pickle.dumps(stream))
    for each in (stream, other):
        each.feed("𝄞".encode()[-1])
        each.close("stop")
    assert other.reply == stream.reply
    assert stream.reply.message.content == "a𝄞"


def test_spans_are_offsets_in_the_text_of_the_ids() -> None:
    fmt = chatcodec.get_format("solar_open2")
    text = "R<|think:end|>a<|tool_call:start|>f\n<|tool_arg:start|>x<|tool_arg:value|>1<|tool_arg:end|>\n<|tool_call:end|><|im:end|>"
    reply = fmt.parse_ids(BYTEWISE.encode(text), BYTEWISE)
    assert [text[slice(*segment.span)] for segment in reply.segments if segment.kind != "call"] == ["R", "a"]


@pytest.mark.parametrize("bad", [[-1], ["a"], [None], [1.5]])
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_what_is_no_id_is_named(kind: str, bad: list[Any]) -> None:
    with pytest.raises(chatcodec.CodecError, match="token id"):
        chatcodec.get_format("inkling").parse_ids(bad, TOKENIZERS[kind][0])


@pytest.mark.parametrize("kind", ["tokenizers", "transformers", "tiktoken"])
def test_an_id_that_the_tokenizer_lacks_is_named(kind: str) -> None:
    with pytest.raises(chatcodec.CodecError, match="no token 10000000"):
        chatcodec.get_format("inkling").parse_ids([10_000_000], TOKENIZERS[kind][0])


def test_what_is_no_tokenizer_is_named() -> None:
    with pytest.raises(chatcodec.CodecError, match="token_to_id and decode, which str has not"):
        chatcodec.get_format("inkling").stream_ids("tokenizer.json")


def test_a_token_of_no_format_is_text() -> None:
    reply = chatcodec.get_format("solar_open2").parse_ids(HF.encode(f"R<|think:end|>a{OTHER}").ids, HF)
    assert reply.message.content == f"a{OTHER}"


def test_a_token_that_is_added_later_counts() -> None:
    fmt, tokenizer = chatcodec.get_format("solar_open2"), hf_tokenizer(without=("<|think:end|>",))
    ids = tokenizer.encode("R<|think:end|>a").ids
    assert fmt.parse_ids(ids, tokenizer).message.content == "a"
    tokenizer.add_special_tokens(["<|think:end|>"])
    assert fmt.parse_ids(ids, tokenizer).message.content is None, "it is spelt in ordinary tokens"
    assert fmt.parse_ids(tokenizer.encode("R<|think:end|>a").ids, tokenizer).message.content == "a"
