"""Cuts TypeScript declarations into the terminals of `grammars/typescript.lark`.

Nothing in a declaration is escaped but the members of enums, so names, descriptions and defaults may look like syntax, and
go on for lines.  Rules of this module:

* as in Python, indentation says what is open: a stack of frames holds it, and what a line may be depends on the topmost;
* a line that can be no member of the open object goes on with the comment above it, and so does one that lies elsewhere;
* a comment behind a variant ends where the first thing stands that can follow the open variants;
* nothing backtracks or recurses, and no search looks at the same text twice for more than a line or a few thousand characters.
"""

import json
import re
from collections.abc import Generator, Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

from lark import Token
from lark.common import LexerConf
from lark.lexer import Lexer

from .errors import CodecError
from .values import TYPE_NAMES


class DeclarationError(CodecError, ValueError):
    """A text that declares no tools.  `position` counts code points from its start."""

    def __init__(self, position: int, reason: str) -> None:
        self.position, self.reason = position, reason
        super().__init__(f"{reason} at position {position}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.position, self.reason)


class _Frame(NamedTuple):
    """Something that is open: an object, a property's choice of variants, or another union, and its indentation."""

    kind: str
    indent: int
    start: int
    description: str | None = None


class DeclarationLexer(Lexer):
    """Cuts declarations into the grammar's terminals."""

    def __init__(self, conf: LexerConf) -> None:
        spelled = {terminal.name: terminal.pattern.to_regexp() for terminal in conf.terminals}
        # a word that stands alone must be one that schemas know
        alone = rf"(?:{'|'.join(sorted(TYPE_NAMES.keys() - {'integer'}))}|any)(?![\w.-]| \| )"
        words = rf"{alone}|(?=[\w.-]++ \| ){spelled['WORDS']}"
        kinds = {"_ANY_ARRAY": spelled["_ANY_ARRAY"], "WORDS": words, "LITERALS": spelled["LITERALS"], "NOTHING": ""}
        self.simple = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in kinds.items()))
        self.value = rf"(?:{self.simple.pattern})(?:\[\])*+(?: \| null)?,(?:\n| // default: )"
        self.head = lru_cache(256)(self._head)
        self.default = lru_cache(256)(self._default)

    def _head(self, indent: int) -> re.Pattern[str]:
        """The head of a property behind its indentation, if what follows is a type; names are no longer than 250 characters."""
        deeper = " " * (indent + 4)
        types = rf"\{{\n|{deeper}// |\n{deeper} \| |{self.value}"
        return re.compile(rf"([^\n]{{0,250}}?\??):(?:(\n)(?={' ' * indent}(?: \| |,\n))| (?={types}))")

    def _default(self, indent: int) -> re.Pattern[str]:
        """A default behind a comma.

        A string is not escaped: it ends with its line, or with a later one if what follows its line is no member.
        """
        text, end = "(?s:.){0,4000}?", rf"(?=\n{' ' * indent}(?:// |\}}|[^\n]*?:[ \n]))"
        return re.compile(rf' // default: ("{text}"{end}|{text}{end}|[^\n]*)\n')

    def lex(self, text: str) -> Iterator[Token]:  # type: ignore[override]
        return _Cutter(self, text).tools() if text else iter(())


_DOC = re.compile(r"// ([^\n]*)\n")
_TYPED = re.compile(r"type ([^\n]*?) = \(_: ")
_HEADING = re.compile(r"## ([^\n]*)\n\n")
_NEXT_TOOL = re.compile(r"\n\n(?=## \S+\n\n|(?:// [^\n]*\n)*+type \S[^\n]*? = \(_: )")
_SPLIT = _NEXT_TOOL.split
_CLOSES = {  # what follows the brace of an object, by what the object stands in
    "tool": re.compile(r"\}(?=(?:\[\])*+\) => any;(?:\n\n|\Z))"),
    "object": re.compile(r"\}(?=(?:\[\])*+(?: \| null)?,(?:\n| // default: ))"),
    "choice": re.compile(r"\}(?=(?:\[\])*+(?: \| null)?(?: // |\n))"),
    "union": re.compile(r"\}(?=(?:\[\])*+(?: \| null(?:\[\])*+)?(?: // |\n|,|\) => any;))"),
}
#: Where a variant can end: before another one, before the end of a choice, before the comma of an array of variants, before a
#: tool's end.  A run of brackets is only looked at from its start.
_VARIANT_END = re.compile(
    r"\n(?P<bar> *) \| "
    r"|\n(?P<end> *),\n"
    r"|(?P<arrays>(?<!\[\])(?:\[\])++)(?: \| null)?,(?:\n| // default: )"
    r"|(?P<tool>(?:(?<!\[\])(?:\[\])++)?\) => any;(?:\n\n|\Z))"
)


class _Cutter:
    """The lexer at work on one text."""

    def __init__(self, lines: DeclarationLexer, text: str) -> None:
        self.lines, self.text, self.position = lines, text, 0
        self.frames: list[_Frame] = [_Frame("tool", 0, 0)]

    def fail(self, reason: str) -> NoReturn:
        raise DeclarationError(self.position, reason)

    def token(self, kind: str, value: str = "", size: int | None = None) -> Token:
        """A terminal here; what it takes of the text is its value unless said otherwise."""
        token = Token(kind, value, self.position)
        self.position += len(value) if size is None else size
        return token

    def matched(self, kind: str, match: re.Match[str]) -> Token:
        return self.token(kind, match[1], len(match[0]))

    def tools(self) -> Iterator[Token]:
        text = self.text
        while True:
            if heading := _HEADING.match(text, self.position):
                yield self.matched("HEADING", heading)
                following = _NEXT_TOOL.search(text, self.position)
                yield self.token("TOOL_TEXT", text[self.position : following.start() if following else len(text)])
            else:
                while doc := _DOC.match(text, self.position):
                    yield self.matched("DOC", doc)
                typed = _TYPED.match(text, self.position)
                if not typed:
                    self.fail("a tool's declaration begins with `type NAME = (_: ` or `## NAME`")
                yield self.matched("TOOL_NAME", typed)
                yield from self.type(0)
                while len(self.frames) > 1:
                    yield from self.member() if self.frames[-1].kind == "object" else self.variant()
                yield from self.brackets(_skip_brackets(text, self.position))
                if not text.startswith(") => any;", self.position):
                    self.fail("a tool's declaration ends with `) => any;`")
                yield self.token("_END", ") => any;")
            if self.position == len(text):
                return
            if not text.startswith("\n\n", self.position) or self.position + 2 == len(text):
                self.fail("a blank line and another declaration, or the end, must follow a declaration")
            yield self.token("_GAP", "\n\n")

    def type(self, indent: int) -> Iterator[Token]:
        """A type, or the beginning of one that opens a frame."""
        text, pad = self.text, " " * indent
        description = None
        if text.startswith(f"{pad}// ", self.position):
            opened = re.compile(rf"\n\{{\n(?={pad}(?:[^ \n]))").search(text, self.position)
            if not opened:
                self.fail("an object's description must be followed by the object")
            description = text[self.position + indent + 3 : opened.start()]
            yield self.token("DESCRIPTION", description, opened.start() + 1 - self.position)
        if text.startswith("{\n", self.position):
            yield self.token("_OPEN", "{\n")
            self.frames.append(_Frame("object", indent, self.position, description))
        elif text.startswith(f"\n{pad} | ", self.position):
            yield self.token("_UNION", "\n")
            self.frames.append(_Frame("union", indent, self.position))
        else:
            match = self.lines.simple.match(text, self.position)
            assert match is not None and match.lastgroup is not None  # where nothing else stands, NOTHING does
            kind, shown = match.lastgroup, match[0]
            yield self.token(kind, shown)
            yield from self.tail(whole=shown.endswith(" | null") and (kind == "LITERALS" or shown == "any | null"))

    def brackets(self, end: int) -> Iterator[Token]:
        while self.position < end:
            yield self.token("_ARRAY", "[]")

    def suffix(self) -> Iterator[Token]:
        yield from self.brackets(_skip_brackets(self.text, self.position))
        if self.text.startswith(" | null", self.position):
            yield self.token("NULL", " | null")

    # -- the members of an object

    def member(self) -> Iterator[Token]:
        """A property with the comments above it, or the end of the object."""
        text, indent = self.text, self.frames[-1].indent
        pad, start = " " * indent, self.position
        if text.startswith(f"{pad}}}", start) and _CLOSES[self.frames[-2].kind].match(text, start + indent):
            yield self.token("_CLOSE", "}", indent + 1)
            closed = self.frames.pop()
            yield from self.tail(closed)
            return
        match = self.lines.head(indent).match
        line = start
        while True:
            if text.startswith(pad, line):
                if not text.startswith("// ", line + indent) and (head := match(text, line + indent)):
                    break
            if line == start and not text.startswith(f"{pad}// ", start):
                self.fail("a comment, a property or the end of the object must stand here")
            line = text.find("\n", line) + 1
            if not line:
                self.fail("the object does not end")
        if line > start:
            yield from self.notes(text[start:line], pad, choice=bool(head[2]))
        self.position = line + indent
        yield self.token("NAME", head[1])
        self.position = head.end()
        if head[2]:
            yield self.token("_CHOICE")
            self.frames.append(_Frame("choice", indent, self.position))
        else:
            yield from self.type(indent + 4)

    def notes(self, block: str, pad: str, *, choice: bool) -> Iterator[Token]:
        """The comments above a property: title, description and examples, and a choice's description and default."""
        note = f"{pad}// "
        titled = f"\n{pad}//\n" in block
        if titled and (title := re.compile(rf"{note}((?s:.)*?)\n{pad}//\n(?={note}|\Z)").match(block)):
            yield self.token("TITLE", title[1], 0)
            block = block[title.end() :]
        default = None
        at = _last_line(block, f"{note}default: ") if choice else -1
        if at >= 0 and plain_default(block[at + len(note) + 9 : -1]) is not BARE:
            default, block = block[at + len(note) + 9 : -1], block[:at]
        examples: list[str] = []
        after = ""
        at = _last_line(block, f"{note}Examples:\n")
        if at >= 0:
            example = re.compile(rf'{note}- "((?s:.)*?)"\n(?={note}|\Z)')
            end = at + len(note) + 10
            while found := example.match(block, end):
                examples.append(found[1])
                end = found.end()
            after = block[end:]
            if after and not (choice and after.startswith(note)):
                at, after = -1, ""
            else:
                block = block[:at]
        if block:
            yield self.token("TEXT", block[len(note) : -1], 0)
        if at >= 0:
            yield self.token("EXAMPLES", "", 0)
            for shown in examples:
                yield self.token("EXAMPLE", shown, 0)
        if after:
            yield self.token("TEXT", after[len(note) : -1], 0)
        if default is not None:
            yield self.token("NOTED_DEFAULT", default, 0)

    # -- variants, and what follows a type

    def variant(self) -> Iterator[Token]:
        """Another variant of a choice or union; or the end of a choice, for the end of a union is seen before it."""
        text, kind, indent = self.text, self.frames[-1].kind, self.frames[-1].indent
        pad = " " * indent
        if text.startswith(f"{pad} | ", self.position):
            yield self.token("_BAR", " | ", indent + 3)
            yield from self.type(indent + 3)
        elif kind == "choice" and text.startswith(f"{pad},\n", self.position):
            yield self.token("_CHOICE_END", "", indent + 2)
            self.frames.pop()
        else:
            self.fail("another variant must stand here, or the end of them")

    def tail(self, closed: _Frame | None = None, *, whole: bool = False) -> Iterator[Token]:
        """What follows a type on its line.

        `closed` is the object that the type was.  `whole` says that it ends with a null that no item of an array shows, so that
        brackets behind it belong to the union that it is a variant of.
        """
        kind = self.frames[-1].kind
        if kind == "object":
            yield from self.suffix()
            yield from self.comma()
        elif kind != "tool":
            yield from self.variant_tail(closed, whole)

    def comma(self) -> Iterator[Token]:
        if not self.text.startswith(",", self.position):
            self.fail("a type must be followed by a comma")
        self.position += 1
        if self.text.startswith("\n", self.position):
            self.position += 1
        elif default := self.lines.default(self.frames[-1].indent).match(self.text, self.position):
            yield self.matched("DEFAULT", default)
        else:
            self.fail("only a default may follow the comma")

    def variant_tail(self, closed: _Frame | None, whole: bool) -> Iterator[Token]:
        """What follows a variant: brackets, a null, a comment, and what ends it and the unions that end with it."""
        text, start = self.text, self.position
        null = start if whole else _skip_brackets(text, start)
        outer = null + 7 if text.startswith(" | null", null) else null  # brackets here are those of the union
        behind = _skip_brackets(text, outer) if outer > null or whole else outer
        end, unions = self.variant_end(behind, (outer, start), commented=text.startswith(" // ", behind))
        value = end["arrays"] is not None
        if value and end.start() == start < outer:
            yield from self.brackets(_skip_brackets(text, start) - 2)  # the last of them makes the array of all variants
        else:
            yield from self.brackets(null)
            if outer > null:
                yield self.token("NULL", " | null")
        if end.start() >= behind:
            if behind > outer and unions:
                yield self.end_union()
                unions -= 1
            yield from self.brackets(behind)
        if end.start() > behind:
            stop = end.start()
            if text.endswith("default: ", behind, stop) and text.startswith("[][]" if value else "[]", stop):
                stop += 2  # the default is an empty list
            unions -= yield from self.comment(stop, closed if null == start and behind == outer else None, unions)
        for _ in range(unions):
            yield self.end_union()
        if value:
            yield from self.suffix()
            yield from self.comma()
        elif end["tool"] is None:
            self.position += 1

    def comment(self, end: int, closed: _Frame | None, unions: int) -> Generator[Token, None, int]:
        """The comment behind a variant, and what is the union's that ends with it.  Returns how many unions that ended."""
        text, start = self.text, self.position + 4
        comment = text[start:end]
        own: str | None = comment
        if unions and closed:
            own = _own_comment(comment, closed.description)
        if own == comment and unions and own.endswith(" | null") and "null" not in text[self.frames[-1].start : end - 7]:
            own = comment[:-7]
        if own is not None:
            yield self.token("COMMENT", own, len(own) + 4)
        if own == comment:
            return 0
        yield self.end_union()
        if text.startswith(" | null", self.position):
            yield self.token("NULL", " | null")
        if self.position < end:
            yield self.token("COMMENT", text[self.position + 4 : end], end - self.position)
        return 1

    def end_union(self) -> Token:
        self.frames.pop()
        return self.token("_UNION_END")

    def variant_end(self, start: int, places: tuple[int, ...], *, commented: bool) -> tuple[re.Match[str], int]:
        """Where the open variant ends: behind its comment, or at one of these places; and how many unions end with it."""
        bottom, depth = len(self.frames) - 1, 0
        unions: dict[int, int] = {}
        while (frame := self.frames[bottom]).kind == "union":
            unions[frame.indent] = depth
            bottom, depth = bottom - 1, depth + 1
        if commented:
            ends: Iterable[re.Match[str] | None] = _VARIANT_END.finditer(self.text, start)
        else:
            ends = (_VARIANT_END.match(self.text, place) for place in (start, *places))
        for end in filter(None, ends):
            if end["bar"] is not None:
                indent = len(end["bar"])
                if indent in unions:
                    return end, unions[indent]
                if frame.kind == "choice" and indent == frame.indent:
                    return end, depth
            elif end["end"] is not None:
                if frame.kind == "choice" and len(end["end"]) == frame.indent:
                    return end, depth
            elif frame.kind == ("object" if end["arrays"] else "tool"):
                return end, depth
        raise DeclarationError(self.position, "a variant must be followed by another, or by the end of them")


def _skip_brackets(text: str, position: int) -> int:
    while text.startswith("[]", position):
        position += 2
    return position


def _last_line(block: str, prefix: str) -> int:
    """Where the last line that begins with a prefix begins, or -1."""
    at = block.rfind("\n" + prefix)
    return at + 1 if at >= 0 else 0 if block.startswith(prefix) else -1


def _own_comment(comment: str, known: str | None) -> str | None:
    """What of the comment behind an object is its own, where the rest is about the union that ends with it.

    An object's description stands in its type as well, so that it is known; and it is not shown without its comment.
    """
    rest = comment if known is None else comment[len(known) :]
    default = "default: " if known is None else " default: "
    if known is not None and not comment.startswith(known):
        return comment
    if rest.startswith(default):
        shown = rest[len(default) :]
        cuts = (shown.find(" // "), len(shown) - 7 if shown.endswith(" | null") else -1, shown.find(" | null // "))
        ends = [cut for cut in cuts if cut > 0 and plain_default(shown[:cut]) is not BARE]
        return comment[: len(comment) - len(shown) + min(ends)] if ends and plain_default(shown) is BARE else comment
    if known is None:
        return None
    return known if rest == " | null" or rest.startswith((" // ", " | null // ")) else comment


BARE = object()


def plain_default(shown: str) -> Any:
    """The default that a text shows by itself: a string in quotes or a JSON value; `BARE` if it is neither."""
    if shown[:1] == '"':
        return shown[1:-1] if len(shown) > 1 and shown[-1] == '"' else BARE
    try:
        value = json.loads(shown)
        return value if json.dumps(value, ensure_ascii=False, separators=(",", ":")) == shown else BARE
    except (ValueError, RecursionError):
        return BARE


def split_tools(text: str) -> list[str]:
    """The declarations of a section, cut wherever the next one may begin."""
    return _SPLIT(text)
