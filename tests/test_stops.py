"""What ends a turn: the strings are in the text where turns end, and the tokens are theirs."""

from typing import Any

import pytest

import chatcodec
from chatcodec.tokens.encoding import encode
from chatcodec.tokens.stops import stop_strings, stop_tokens
from make_tokenizer import MAKERS, hf_tokenizer

formats = pytest.mark.parametrize("name", chatcodec.list_formats())
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": "y"}}}
TURNS: list[dict[str, Any]] = [
    {"role": "assistant", "reasoning_content": "r", "content": "c"},
    {"role": "assistant", "reasoning_content": "r", "tool_calls": [CALL]},
]


@formats
@pytest.mark.parametrize("kind", MAKERS)
def test_every_turn_ends_with_a_stop_and_every_stop_ends_a_turn(name: str, kind: str) -> None:
    fmt, tokenizer = chatcodec.get_format(name), MAKERS[kind]()
    strings, tokens = stop_strings(fmt), stop_tokens(fmt, tokenizer)
    assert len(strings) == len(tokens) == len(set(tokens))
    seen = set()
    for turn in TURNS:
        rendered = fmt.render([{"role": "user", "content": "u"}, turn])
        encoded = encode(rendered, tokenizer)
        span = rendered.sampled_spans[-1]
        assert span is not None
        string = next(string for string in strings if rendered.text[slice(*span)].endswith(string))
        assert rendered.text[slice(*span)].count(string) == 1
        last = max(number for number, sampled in enumerate(encoded.sampled) if sampled)
        assert encoded.ids[last] == tokens[strings.index(string)]
        assert fmt.parse(rendered.text[slice(*span)], prompt=rendered.text[: span[0]]).finish_reason != "length"
        seen.add(string)
    assert seen == set(strings)


@formats
def test_a_stop_that_is_no_token(name: str) -> None:
    fmt = chatcodec.get_format(name)
    stop = stop_strings(fmt)[0]
    with pytest.raises(chatcodec.CodecError, match="no token of its own") as refused:
        stop_tokens(fmt, hf_tokenizer(without=(stop,)))
    assert repr(stop) in str(refused.value) and name in str(refused.value)
