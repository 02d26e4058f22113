"""Control tokens that were recognised by their id, told apart from the same characters in ordinary text.

Rules of this module: a control token is *guarded*: its first character is replaced by a lone surrogate, which no text that a
tokenizer decodes can hold.  It is as long as before, so that offsets stay those of the text; and whatever looks for the guarded
spelling (a grammar's markers) never finds an imitation.
"""

import re
from collections.abc import Iterable
from functools import cached_property

_FIRST_GUARD = 0xD800
_TELLING = 3  #: characters that the beginning of a control token must have, to be taken for one
_ANY_GUARD = re.compile("[\ud800-\udfff]")


class ControlTokens:
    """The control tokens that a tokenizer has."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self.tokens = tuple(sorted(tokens))
        firsts = sorted({token[0] for token in self.tokens})
        self._guards = {first: chr(_FIRST_GUARD + number) for number, first in enumerate(firsts)}
        self._spelt = [(guard, first) for first, guard in self._guards.items()]

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, sorted(self.tokens, key=len, reverse=True))) or r"(?!)")

    def guard(self, token: str) -> str:
        """The guarded spelling of one control token."""
        return self._guards[token[0]] + token[1:]

    def guard_all(self, literal: str) -> str:
        """A literal of a grammar with each control token in it guarded, and at its end what only begins one."""
        guarded = self._pattern.sub(lambda match: self.guard(match.group()), literal)
        for start in range(len(guarded) - _TELLING + 1):
            if any(token.startswith(guarded[start:]) for token in self.tokens):
                return guarded[:start] + self.guard(guarded[start:])
        return guarded

    def spell(self, text: str) -> str:
        """The text as it is decoded, without guards."""
        if text.isascii():
            return text
        for guard, first in self._spelt:
            text = text.replace(guard, first)
        return text


def ordinary(text: str) -> str:
    """Text that holds no guard, whatever a tokenizer makes of its bytes."""
    return text if text.isascii() else _ANY_GUARD.sub("\ufffd", text)
