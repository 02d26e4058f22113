"""Tokenizers of other libraries, brought into one shape.

Rules of this module:

* a `tokenizers.Tokenizer`, a fast tokenizer of `transformers` and a `tiktoken.Encoding` are known by what they can do;
  none of the three libraries is imported;
* the caller's tokenizer is only read.  Text is encoded by twins that share its model and its rules but have no truncation,
  no padding and no template, and, for text that must not hold a control token, not the control tokens either;
* a tokenizer's adapter is kept as long as the tokenizer lives, and made anew when tokens were added to it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ..errors import CodecError
from ..jsontext import half_at

Extent = tuple[int, int]
Where = Callable[[int], Extent]
"""From the number of a token to where it stands in a text."""
Extents = Callable[[int, int, int], Where]
"""Where tokens stand, given the first of them, the one behind the last, and where the first begins."""


class Part(NamedTuple):
    """The tokens of a text, and where they stand in it."""

    ids: list[int]
    extents: Extents


Encode = Callable[[str], Part]


@dataclass(frozen=True, eq=False)
class Adapter:
    """What the library asks of a tokenizer.

    `special` are the tokens that text must not forge, `known` all that it was given beside its model's vocabulary.
    `whole` encodes a text as the tokenizer itself would, `wholes` several at once, and `without(tokens)` makes what encodes
    text as if the tokenizer did not have these tokens.
    """

    special: Mapping[str, int]
    known: Mapping[str, int]
    whole: Encode
    wholes: Callable[[list[str]], list[Part]]
    without: Callable[[frozenset[str]], Encode]
    decode: Callable[[Sequence[int]], str]
    size: int
    kept: dict[Any, Any] = field(default_factory=dict)  #: what others work out for this tokenizer


_ADAPTERS: WeakKeyDictionary[Any, Adapter] = WeakKeyDictionary()


def adapt(tokenizer: Any) -> Adapter:
    """The adapter of a tokenizer.  Raises CodecError for what is no tokenizer of the three kinds."""
    for name in ("backend_tokenizer", "_tokenizer"):  # of transformers, and of what wraps a Tokenizer as that does
        inner = getattr(tokenizer, name, None)
        if hasattr(inner, "get_added_tokens_decoder"):
            tokenizer = inner
            break
    make: Callable[[Any, int], Adapter]
    if hasattr(tokenizer, "get_added_tokens_decoder") and hasattr(tokenizer, "pre_tokenizer"):
        make, size = _tokenizers_adapter, tokenizer.get_vocab_size()
    elif hasattr(tokenizer, "encode_ordinary") and hasattr(tokenizer, "special_tokens_set"):
        make, size = _tiktoken_adapter, tokenizer.n_vocab
    else:
        raise CodecError(
            f"a tokenizer must be a tokenizers.Tokenizer, a fast tokenizer of transformers or a tiktoken.Encoding, not "
            f"{type(tokenizer).__module__}.{type(tokenizer).__qualname__}"
        )
    found = _ADAPTERS.get(tokenizer)
    if found is None or found.size != size:
        found = _ADAPTERS[tokenizer] = make(tokenizer, size)
    return found


def check_text(text: str) -> None:
    """Raises CodecError for half a surrogate pair, which no tokenizer can encode."""
    if (place := half_at(text)) is not None:
        raise CodecError(f"half a surrogate pair at character {place}, which no tokenizer can encode")


# ----------------------------------------------------------------------------------------------------------- tokenizers


def _tokenizers_adapter(tokenizer: Any, size: int) -> Adapter:
    added: dict[int, Any] = dict(sorted(tokenizer.get_added_tokens_decoder().items()))
    whole, wholes = _twin(tokenizer, added)
    return Adapter(
        special={token.content: number for number, token in added.items() if token.special},
        known={token.content: number for number, token in added.items()},
        whole=whole,
        wholes=wholes,
        without=lambda tokens: _twin(tokenizer, {number: token for number, token in added.items() if token.content not in tokens})[0],
        decode=lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False)),
        size=size,
    )


def _twin(tokenizer: Any, added: Mapping[int, Any]) -> tuple[Encode, Callable[[list[str]], list[Part]]]:
    """What encodes with a tokenizer's own model and rules, and only these tokens besides."""
    twin = type(tokenizer)(tokenizer.model)
    if tokenizer.normalizer is not None:
        twin.normalizer = tokenizer.normalizer
    if tokenizer.pre_tokenizer is not None:
        twin.pre_tokenizer = tokenizer.pre_tokenizer
    twin.add_tokens(list(added.values()))
    there = {number: twin.token_to_id(token.content) for number, token in added.items()}
    moved = {new: number for number, new in there.items() if new != number}  # the twin counts on where the model's ids end

    def part(encoding: Any) -> Part:
        ids = encoding.ids
        extent = encoding.token_to_chars
        return Part([moved.get(number, number) for number in ids] if moved else ids, lambda first, last, start: extent)

    def whole(text: str) -> Part:
        return part(twin.encode(text, add_special_tokens=False))

    def wholes(texts: list[str]) -> list[Part]:
        return [part(encoding) for encoding in twin.encode_batch(texts, add_special_tokens=False)]

    return whole, wholes


# -------------------------------------------------------------------------------------------------------------- tiktoken


def _tiktoken_adapter(encoding: Any, size: int) -> Adapter:
    special = {token: encoding.encode_single_token(token) for token in encoding.special_tokens_set}
    weights = _Weights(encoding)

    def part(ids: list[int]) -> Part:
        return Part(ids, partial(_extents, weights, ids))

    return Adapter(
        special=special,
        known=special,
        whole=lambda text: part(encoding.encode(text, allowed_special="all", disallowed_special=())),
        wholes=lambda texts: [part(ids) for ids in encoding.encode_batch(texts, allowed_special="all", disallowed_special=())],
        without=lambda tokens: _except(encoding, tokens, part),
        decode=lambda ids: str(encoding.decode(list(ids))),
        size=size,
    )


def _except(encoding: Any, tokens: frozenset[str], part: Callable[[list[int]], Part]) -> Encode:
    others = encoding.special_tokens_set - tokens
    if others:
        return lambda text: part(encoding.encode(text, allowed_special=others, disallowed_special=()))
    return lambda text: part(encoding.encode_ordinary(text))


class _Weights(dict[int, Extent]):
    """For each token the number of characters that begin in it, and 1 if it begins inside a character."""

    def __init__(self, encoding: Any) -> None:
        super().__init__()
        self._bytes_of = encoding.decode_single_token_bytes

    def __missing__(self, token: int) -> Extent:
        data: bytes = self._bytes_of(token)
        begun = sum(1 for byte in data if byte & 0xC0 != 0x80)
        self[token] = made = (begun, int(bool(data) and data[0] & 0xC0 == 0x80))
        return made


def _extents(weights: _Weights, ids: Sequence[int], first: int, last: int, start: int) -> Where:
    found: list[Extent] = []  # as far as they were asked for
    end = start

    def extent(number: int) -> Extent:
        nonlocal end
        at = number - first
        while len(found) <= at:
            begun, inside = weights[ids[first + len(found)]]
            begin, end = end - inside, end + begun
            found.append((begin, end))
        return found[at]

    return extent


def token_ids(adapter: Adapter, tokens: Iterable[str], what: str) -> list[int]:
    """The ids of tokens that the tokenizer must have.  Raises CodecError that names those it lacks."""
    tokens = list(tokens)
    if missing := [token for token in tokens if token not in adapter.known]:
        raise CodecError(f"the tokenizer has no token of its own for {', '.join(map(repr, missing))}, {what}")
    return [adapter.known[token] for token in tokens]
