"""Real tokenizers for the tests: byte-level BPE, trained in a moment on text that is made here.  Nothing is fetched.

Rules of this module:

* each has a token of its own for every control token of every format, and one more that no format has;
* the same merges make a `tokenizers.Tokenizer`, a fast tokenizer of `transformers` and a `tiktoken.Encoding`;
* the caller may change what it gets: every one is made anew, and only the training is kept.
"""

import json
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any

import chatcodec

OTHER = "<|endoftext|>"  #: a special token that belongs to no format
PATTERN = r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"""


def special_tokens() -> list[str]:
    """The control tokens of all formats, sorted, and one more."""
    return [*sorted({token for name in chatcodec.list_formats() for token in chatcodec.get_format(name).special_tokens}), OTHER]


def _texts() -> Iterator[str]:
    for name in chatcodec.list_formats():
        fmt = chatcodec.get_format(name)
        for number in range(20):
            call = {
                "id": "1",
                "type": "function",
                "function": {"name": "get_weather", "arguments": {"city": f"Oslo {number}", "days": number}},
            }
            yield fmt.render(
                [
                    {"role": "user", "content": f"Will it rain in the river town number {number}? Answer, please: naïve 여름 😀"},
                    {"role": "assistant", "reasoning_content": "I should look that up.", "content": "", "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "1", "content": '{"rain": true, "wind": [1.5, 2]}\n\n    indented'},
                    {"role": "assistant", "reasoning_content": "It rains.", "content": "Yes, it will rain there."},
                ]
            ).text


@cache
def _trained() -> str:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_texts(), trainer)
    return str(tokenizer.to_str())


def hf_tokenizer(*, plain: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> Any:
    """A `tokenizers.Tokenizer`; tokens that are `plain` are added but not special, and some may be left out."""
    from tokenizers import AddedToken, Tokenizer

    tokenizer = Tokenizer.from_str(_trained())
    for token in special_tokens():
        if token in plain:
            tokenizer.add_tokens([AddedToken(token, normalized=False)])
        elif token not in without:
            tokenizer.add_special_tokens([token])
    return tokenizer


def transformers_tokenizer() -> Any:
    """A fast tokenizer of `transformers`."""
    from transformers import PreTrainedTokenizerFast

    make: Any = PreTrainedTokenizerFast
    return make(tokenizer_object=hf_tokenizer())


def tiktoken_encoding(*, without: tuple[str, ...] = ()) -> Any:
    """A `tiktoken.Encoding` with the same merges."""
    from tiktoken import Encoding

    byte_of = _bytes_of_unicode()
    vocabulary = json.loads(_trained())["model"]["vocab"]
    ranks = {bytes(byte_of[character] for character in token): number for token, number in vocabulary.items()}
    specials = {token: len(ranks) + number for number, token in enumerate(special_tokens()) if token not in without}
    return Encoding("made for tests", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=specials)


def _bytes_of_unicode() -> dict[str, int]:
    """The characters that byte-level BPE writes bytes with: printable ones stand for themselves."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + number): byte for number, byte in enumerate(others)}


#: How to make each kind of tokenizer whose library is installed.
MAKERS = {
    kind: maker
    for kind, maker in {"tokenizers": hf_tokenizer, "transformers": transformers_tokenizer, "tiktoken": tiktoken_encoding}.items()
    if find_spec(kind)
}
