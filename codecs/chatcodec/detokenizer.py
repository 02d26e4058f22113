"""Token ids to text, as they come: control tokens by their id, characters that are cut wait for their rest.

Rules of this module:

* no tokenizer is imported: what it must be able to do is `Tokenizer`, and the tokenizers of `tokenizers`, `transformers` and
  `tiktoken` are recognised by what they can do;
* a tokenizer that gives the bytes of one token (byte-level BPE) is asked once for each; any other decodes the newest tokens
  beside those before them, since a token's text may depend on its neighbours.
"""

from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from operator import index
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from .controls import ControlTokens, ordinary
from .errors import CodecError

_UNFINISHED = "\ufffd"  #: what a cut character is decoded to
_LONGEST_CHARACTER = 8  #: tokens that one character may be cut into, and some more


class Tokenizer(Protocol):
    """What is asked of a tokenizer."""

    def token_to_id(self, token: str, /) -> int | None:
        """The id of a token, or None if there is none."""

    def decode(self, ids: Sequence[int], /, skip_special_tokens: bool = ...) -> str:
        """The text of ids."""


class Vocabulary:
    """A tokenizer made ready: the text or bytes of each id."""

    def __init__(self, tokenizer: Any) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)  # transformers wraps one of `tokenizers`
        self.bytes: dict[int, bytes] = {}  #: of ids that were seen
        self.bytes_of: Callable[[int], bytes] | None = None
        self.special: Iterable[str] = ()  #: its special tokens, as far as it tells
        if hasattr(backend, "decode_single_token_bytes"):
            self.bytes_of = _tiktoken_bytes(backend)
            self.id_of = _tiktoken_id(backend)
            self.special = getattr(backend, "special_tokens_set", ())
        elif hasattr(backend, "token_to_id") and hasattr(backend, "decode"):
            self.id_of = backend.token_to_id
            self.decode = backend.decode
            added = backend.get_added_tokens_decoder() if hasattr(backend, "get_added_tokens_decoder") else {}
            self.special = [token.content for token in added.values() if token.special]
            if type(getattr(backend, "decoder", None)).__name__ == "ByteLevel":
                self.bytes_of = _byte_level(backend, {number: token.content for number, token in added.items()})
        elif hasattr(backend, "convert_tokens_to_ids") and hasattr(backend, "decode"):
            self.id_of = _converted_id(backend)
            self.decode = backend.decode
        else:
            raise CodecError(f"a tokenizer must have token_to_id and decode, which {type(tokenizer).__name__} has not")

    def controls(self, tokens: Iterable[str], openers: tuple[str, ...] = ()) -> dict[int, str]:
        """Those of the tokens that this tokenizer has, by id, and those of its special tokens that begin with an opener."""
        found = ((self.id_of(token), token) for token in {*tokens, *(token for token in self.special if token.startswith(openers))})
        return {number: token for number, token in found if number is not None}


_KNOWN: WeakKeyDictionary[Any, tuple[int, Vocabulary]] = WeakKeyDictionary()


def vocabulary(tokenizer: Any) -> Vocabulary:
    """The vocabulary of a tokenizer, kept as long as that lives and no token is added to it.  Raises CodecError."""
    size = len(tokenizer) if hasattr(tokenizer, "__len__") else tokenizer.get_vocab_size() if hasattr(tokenizer, "get_vocab_size") else 0
    try:
        known = _KNOWN.get(tokenizer)
        if known is None or known[0] != size:
            known = _KNOWN[tokenizer] = size, Vocabulary(tokenizer)
    except TypeError:  # it cannot be a key, so nothing is kept
        return Vocabulary(tokenizer)
    return known[1]


def _tiktoken_id(encoding: Any) -> Callable[[str], int | None]:
    def number(token: str) -> int | None:
        try:
            found: int = encoding.encode_single_token(token)
        except KeyError:
            return None
        return found

    return number


def _tiktoken_bytes(encoding: Any) -> Callable[[int], bytes]:
    def spelt(number: int) -> bytes:
        try:
            found: bytes = encoding.decode_single_token_bytes(number)
        except KeyError:
            raise CodecError(f"the tokenizer has no token {number}") from None
        return found

    return spelt


def _converted_id(tokenizer: Any) -> Callable[[str], int | None]:
    def number(token: str) -> int | None:
        found = tokenizer.convert_tokens_to_ids(token)
        return found if found is not None and tokenizer.convert_ids_to_tokens(found) == token else None  # else it is the unknown token

    return number


def _byte_level(tokenizer: Any, added: dict[int, str]) -> Callable[[int], bytes]:
    """The bytes of a token of byte-level BPE, whose tokens are spelt in an alphabet with a letter for each byte."""
    alphabet = _byte_alphabet()

    def spelt(number: int) -> bytes:
        token = added.get(number)
        if token is not None:
            return str(token).encode()
        token = tokenizer.id_to_token(number)
        if token is None:
            raise CodecError(f"the tokenizer has no token {number}")
        try:
            return bytes([alphabet[letter] for letter in token])
        except KeyError:
            return str(token).encode()

    return spelt


def _byte_alphabet() -> dict[str, int]:
    """The alphabet of GPT-2's byte-level BPE: a printable byte is its Latin-1 letter, others follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(0x100) if byte not in printable]
    return alphabet | {chr(0x100 + place): byte for place, byte in enumerate(others)}


def _checked(number: Any) -> int:
    try:
        checked = index(number)
    except TypeError:
        raise CodecError(f"a token id must be an integer, not {type(number).__name__}") from None
    if checked < 0:
        raise CodecError(f"a token id cannot be {checked}")
    return checked


class Detokenizer:
    """The text of a stream of ids, control tokens guarded."""

    def __init__(self, words: Vocabulary, controls: dict[int, str], guards: ControlTokens) -> None:
        self._words, self._guards = words, guards
        self._controls = {number: guards.guard(token) for number, token in controls.items()}
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._before: list[int] = []  #: the ids that were decoded last
        self._waiting: list[int] = []  #: ids of which the last may be part of a character

    def feed(self, ids: Iterable[int]) -> str:
        """More ids; gives the text that is certain."""
        pieces = []
        for number in ids:
            control = self._controls.get(number)
            if control is not None:
                pieces.append(self.close())
                pieces.append(control)
                self._before = [number]
            elif self._words.bytes_of is not None:
                spelt = self._words.bytes.get(number)
                if spelt is None:
                    spelt = self._words.bytes[number] = self._words.bytes_of(_checked(number))
                pieces.append(self._decoder.decode(spelt))
            else:
                self._waiting.append(_checked(number))
                pieces.append(self._decode(final=False))
        return "".join(pieces)

    def close(self) -> str:
        """What still waits for its rest, which does not come."""
        text = self._decode(final=True) if self._waiting else self._decoder.decode(b"", True)
        self._decoder.reset()
        return text

    def _decode(self, *, final: bool) -> str:
        decode = self._words.decode
        text = decode([*self._before, *self._waiting], skip_special_tokens=False)
        if text.endswith(_UNFINISHED) and not final and len(self._waiting) < _LONGEST_CHARACTER:
            return ""
        known = decode(self._before, skip_special_tokens=False) if self._before else ""
        self._before, self._waiting = self._waiting, []
        return ordinary(text[len(known) :])

    def fork(self) -> "Detokenizer":
        """An independent one that goes on from here."""
        made = copy(self)
        made._decoder = getincrementaldecoder("utf-8")("replace")
        made.restore(self.state())
        return made

    def state(self) -> list[Any]:
        """What has to be kept to go on elsewhere, as JSON has it."""
        return [self._decoder.getstate()[0].hex(), self._before, self._waiting]

    def restore(self, state: list[Any]) -> None:
        """Go on from a state."""
        self._decoder.setstate((bytes.fromhex(state[0]), 0))
        self._before, self._waiting = [*state[1]], [*state[2]]
