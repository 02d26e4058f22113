"""Rows about tokens: safe encoding beside the tokenizer's own encoding of the same text, and what a loss mask adds.

The tokenizers are byte-level BPE, trained here on the texts of the fixtures and on Python source, with the control tokens of
all formats.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

import chatcodec
from chatcodec import Format
from chatcodec.detokenizer import vocabulary
from chatcodec.tokens.encoding import encode
from chatcodec.tokens.masks import mask_of

from .fixtures import LONG_TOOLS, long_conversation, prose, source
from .table import OURS, Row
from .timing import Lap, lap

OWN, UNMASKED = "tokenizer", "unmasked"
GOALS = {OWN: 1.3}
MASK_GOALS = {UNMASKED: 1.2}
VOCABULARY = 8_000
PATTERN = r"""[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"""

NOTES = ("tokenizer is the tokenizer's own encoding of the same text, unmasked is chatcodec's without the mask",)


def rows(fmt: Format) -> Iterator[Row]:
    """The rows of a format."""
    for kind in ("tokenizers", "tiktoken"):
        yield Row(fmt.name, f"encode 200 turns, {kind}", "us", partial(_encodes, fmt, kind), GOALS)
        yield Row(fmt.name, f"encode 200 turns with a loss mask, {kind}", "us", partial(_masks, fmt, kind), MASK_GOALS)


def _encodes(fmt: Format, kind: str) -> Mapping[str, Lap]:
    tokenizer = _tokenizer(kind)
    rendered = fmt.render(long_conversation(), tools=LONG_TOOLS)
    assert encode(rendered, tokenizer).ids == _plain(tokenizer, rendered.text), f"{fmt.name}: other tokens than the tokenizer's own"
    return {OURS: lap(lambda: encode(rendered, tokenizer).ids), OWN: lap(lambda: _plain(tokenizer, rendered.text))}


def _masks(fmt: Format, kind: str) -> Mapping[str, Lap]:
    tokenizer = _tokenizer(kind)
    messages = long_conversation()

    def masked() -> Any:
        rendered = fmt.render(messages, tools=LONG_TOOLS)
        return mask_of(encode(rendered, tokenizer))

    def unmasked() -> Any:
        rendered = fmt.render(messages, tools=LONG_TOOLS)
        return encode(rendered, tokenizer).ids

    mask = masked()
    assert any(mask), f"{fmt.name}: nothing is trained on"
    return {OURS: lap(masked), UNMASKED: lap(unmasked)}


def _plain(tokenizer: Any, text: str) -> list[int]:
    if hasattr(tokenizer, "encode_ordinary"):
        return list(tokenizer.encode(text, allowed_special="all"))
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


@cache
def _tokenizer(kind: str) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    specials = sorted({token for name in chatcodec.list_formats() for token in chatcodec.get_format(name).special_tokens})
    if kind == "tiktoken":
        return _tiktoken(_tokenizer("tokenizers"), specials)
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    texts = [source(200_000), prose(2_000), json.dumps(long_conversation(), ensure_ascii=False)]
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(specials)
    return tokenizer


def _tiktoken(tokenizer: Any, specials: list[str]) -> Any:
    """The same merges for tiktoken."""
    from tiktoken import Encoding

    bytes_of = vocabulary(tokenizer).bytes_of
    assert bytes_of is not None
    size = tokenizer.get_vocab_size(with_added_tokens=False)
    ranks = {bytes_of(number): number for number in range(size)}
    return Encoding(
        "benchmark", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={token: size + at for at, token in enumerate(specials)}
    )
