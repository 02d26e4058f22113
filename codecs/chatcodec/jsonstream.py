"""Reads a call's JSON while it arrives: its name, and its arguments as the model writes them.

Rules of this module: it finds where things stand and judges nothing, for what is no JSON is found out when all is there; what
was read is never read again, so that a string of a megabyte costs no more a piece than a short one.
"""

import json
import re
from typing import Any

from .jsontext import HEX, HIGH, STRING_END, mend_halves

_STRUCTURE = re.compile(r'["{}\[\],:]').search
#: The end of a text that is, or may become, the beginning of an escape or of a pair.
_CUT_ESCAPE = re.compile(rf"(?:[^\\]|\\.)*?(?P<held>\\(?:u(?:{HEX}{{0,3}}|{HIGH}(?:\\(?:u{HEX}{{0,3}})?)?))?)\Z", re.DOTALL).fullmatch
NAME_KEYS = ("name",)
ARGUMENTS_KEYS = ("args", "arguments")


class CallScanner:
    """The state of reading `{"name": NAME, "args": {KEY: VALUE, …}}`, with the keys in any order."""

    name: str | None = None  #: once it is complete
    found = False  #: the arguments began, and are an object
    closed_at = 0  #: up to where the arguments are complete: behind the last value that is followed by a comma or a brace
    key: str | None = None  #: the argument whose value is open
    value_at = -1  #: where that value begins
    held = ""  #: the beginning of an escape

    def __init__(self) -> None:
        self.at = 0  #: how much was read
        self.depth = 0
        self.in_string = self.escaped = False
        self.is_key = False  #: the open string names a member
        self.expects_key = False
        self.member: str | None = None  #: the outer member whose value is open
        self.raw: list[str] = []  #: the open key or name, as written
        self.keeps = False  #: the open string is one of those
        self.in_arguments = False
        self.start = 0  #: where the arguments began
        self.pieces: list[str] = []  #: of the arguments, not taken yet

    def feed(self, text: str) -> None:
        """Take more of the object."""
        if self.in_string and not self.keeps and not self.escaped and '"' not in text and "\\" not in text:  # the most frequent
            self.at += len(text)
            if self.in_arguments:
                self.pieces.append(text)
            return
        position, size, base = 0, len(text), self.at
        sent = 0  # from where on pieces of the arguments are still to be kept
        while position < size:
            if self.escaped:
                self.escaped = False
                self._keep(text[position])
                position += 1
            elif self.in_string:
                match = STRING_END(text, position)
                end = match.start() if match else size
                self._keep(text[position:end])
                position = end
                if match and match.group() == "\\":
                    self.escaped = True
                    self._keep("\\")
                    position += 1
                elif match:
                    position += 1
                    self.in_string = False
                    self._end_string()
            else:
                match = _STRUCTURE(text, position)
                if match is None:
                    break
                position = match.end()
                was = self.in_arguments
                self._structure(match.group(), base + match.start())
                if self.in_arguments and not was:
                    sent = match.start()
                elif was and not self.in_arguments:
                    self.pieces.append(text[sent:position])
        if self.in_arguments and sent < size:
            self.pieces.append(text[sent:])
        self.at = base + size

    def _keep(self, text: str) -> None:
        if self.keeps:
            self.raw.append(text)

    def _structure(self, character: str, at: int) -> None:
        level = self.depth - self.in_arguments  # 1: among the outer members, or among the arguments
        if character == '"':
            self.in_string = True
            self.is_key = self.expects_key and level == 1
            self.keeps = self.is_key or (level == 1 and not self.in_arguments and self.member in NAME_KEYS)
            self.raw = []
        elif character in "{[":
            if character == "{" and self.depth == 1 and self.member in ARGUMENTS_KEYS and not self.found:
                self.in_arguments = self.found = True
                self.start, self.closed_at = at, at + 1
                self.key = None
            self.depth += 1
            self.expects_key = character == "{"
        elif character in "}]":
            self.depth -= 1
            if self.in_arguments and self.depth == 1:
                self.in_arguments = False
                self.closed_at, self.key = at, None
            self.expects_key = False
        elif character == ",":
            if level == 1:
                self.expects_key = True
                if self.in_arguments:
                    self.closed_at, self.key = at, None
        elif level == 1:
            self.expects_key = False
            if self.in_arguments:
                self.value_at = at + 1

    def _end_string(self) -> None:
        if not self.keeps:
            return
        try:
            text = json.loads(f'"{mend_halves("".join(self.raw))}"')
        except ValueError:
            text = None
        self.keeps = False
        if not self.is_key:
            self.name = self.name if self.name is not None else text
        elif self.in_arguments:
            self.key = text
        else:
            self.member = text

    def take(self) -> str:
        """The arguments that came since this was last asked, never cut inside an escape or a pair of them."""
        if not self.pieces:
            return ""
        text = self.held + "".join(self.pieces)
        self.pieces, self.held = [], ""
        text = mend_halves(text)
        if "\\" not in text:
            return text
        cut = _CUT_ESCAPE(text) if self.in_arguments else None
        if cut is not None:
            self.held = cut.group("held")
            text = text[: len(text) - len(self.held)]
        return text


def cut_arguments(scanner: CallScanner, text: str) -> tuple[dict[str, Any], dict[str, str] | None]:
    """The arguments of a cut-off object that are complete, and the open one with its text so far."""
    if not scanner.found:
        return {}, None
    try:
        closed = json.loads(text[scanner.start : scanner.closed_at] + "}")
    except (ValueError, RecursionError):
        closed = {}
    if scanner.key is None or scanner.value_at <= scanner.closed_at:
        return closed, None
    value = text[scanner.value_at :].lstrip()
    if value.startswith('"'):
        for cut in range(7):  # an escape may have been cut
            try:
                return closed, {scanner.key: json.loads(value[: len(value) - cut] + '"')}
            except ValueError:
                continue
    return closed, {scanner.key: value}
