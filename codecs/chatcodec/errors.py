"""What can go wrong, and how it is named.

Rules of this module:

* every exception that leaves the library is a `CodecError`;
* diagnostics, losses and repairs are values, not exceptions, and their codes are closed lists that stand here and nowhere else;
* an error says where, what was there and what was expected.

    CodecError
    ├─ UnknownFormatError (LookupError)   names the near misses
    ├─ RenderError (ValueError)           a conversation that the format cannot write
    └─ ParseError (ValueError)            a text that the format does not know, or that `policy="strict"` refuses
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Literal, NamedTuple

Severity = Literal["info", "warning", "error"]

#: Every diagnostic of a parse: its severity, and whether `policy="strict"` refuses it.
DIAGNOSTICS: dict[str, tuple[Severity, bool]] = {
    "truncated": ("error", True),
    "unclosed_reasoning": ("error", True),
    "malformed_call": ("error", True),
    "malformed_json": ("error", True),
    "type_mismatch": ("warning", True),
    "duplicate_argument": ("warning", True),
    "unclosed_parameter": ("warning", True),
    "unclosed_call": ("warning", True),
    "unclosed_block": ("warning", True),
    "implicit_reasoning_end": ("warning", True),
    "missing_call_open": ("warning", True),
    "missing_channel": ("warning", True),
    "missing_message_marker": ("warning", True),
    "missing_stop": ("info", False),
    "stray_marker": ("warning", True),
    "stray_text": ("warning", True),
    "stray_recipient": ("warning", True),
    "text_after_call": ("info", False),
    "text_after_end": ("warning", True),
    "reasoning_joined": ("info", False),
    "unknown_tool": ("warning", True),
    "name_mismatch": ("warning", True),
    "recipient_namespace": ("info", False),
    "foreign_dialect": ("warning", True),
    "unknown_channel": ("warning", True),
    "double_encoded": ("warning", True),
    "lone_surrogate": ("warning", True),
    "float_to_int": ("info", False),
    "precision_lost": ("info", False),
    "ambiguous_null": ("info", False),
    "untyped": ("info", False),
    "unterminated_marker_prefix": ("info", False),
}

#: Everything that a rendered text may be unable to give back.
LOSSES = frozenset(
    """content_dropped content_lost reasoning_dropped message_dropped message_rendered_empty whitespace_trimmed
    control_token_in_content control_token_in_argument system_hoisted system_merged tool_result_order tool_call_id_dropped
    duplicate_tool_call_id orphan_tool_result key_order_lost value_type_lost null_content media_dropped schema_dropped
    option_ignored non_finite_number ends_with_assistant""".split()
)

#: Why a format refuses to render.  Where its template raises by itself, `RenderError.reason` has the template's words.
REFUSALS = frozenset(
    """unknown_role content_not_string media_not_supported arguments_not_json arguments_not_mapping missing_tool_name
    missing_tool_call_id system_position tool_not_wrapped wire_tag_in_content reserved_delimiter bad_option unknown_option
    bad_message bad_tool no_messages""".split()
)

#: What a conversion of data sets puts right, each time saying so.
REPAIRS = frozenset(
    """null_padding_removed float_to_int ambiguous_null tool_results_reordered content_parts_joined arguments_decoded""".split()
)


class Diagnostic(NamedTuple):
    """Something odd in a parsed text.  `span` is in code points of the whole completion; the raw text stands there."""

    code: str
    detail: str | None
    span: tuple[int, int]
    severity: Severity

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.severity}: {self.code}{detail} at {self.span[0]}-{self.span[1]}"


class Loss(NamedTuple):
    """Something that a rendered text cannot give back.  `path` is where it stands in the input: `messages[1].content`."""

    code: str
    path: str
    detail: str | None = None

    def __str__(self) -> str:
        return f"{self.code} at {self.path}" + (f" ({self.detail})" if self.detail else "")


class CodecError(Exception):
    """The root of all errors of this library."""


class UnknownFormatError(CodecError, LookupError):
    """No format has that name.  `name` is what was asked for, `known` the names there are."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(f"unknown format {name!r}{nearest(name, known)}; the formats are {', '.join(known)}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.name, self.known)


class RenderError(CodecError, ValueError):
    """A conversation that a format cannot write.

    `path` is the place in the input (`messages[2].tool_calls[0].function.name`), `code` one of `REFUSALS`, and `reason`
    the chat template's own words where the template itself raises, else the code.  `detail` explains it.
    """

    def __init__(self, format: str, path: str, code: str, detail: str, *, reason: str | None = None) -> None:
        self.format, self.path, self.code, self.detail, self.reason = format, path, code, detail, reason or code
        super().__init__(f"{format}: {path}: {detail} [{code}]")

    def __reduce__(self) -> tuple[object, ...]:
        return _render_error, (self.format, self.path, self.code, self.detail, self.reason)


def _render_error(format: str, path: str, code: str, detail: str, reason: str) -> RenderError:
    return RenderError(format, path, code, detail, reason=reason)


class ParseError(CodecError, ValueError):
    """A text that does not follow its format.

    `position` counts code points from the start of `text`; `line` and `column` count from 1.  `expected` are the markers
    or kinds of text that could have stood there, `diagnostics` what a parse had found up to there.
    """

    def __init__(
        self,
        format: str,
        text: str,
        position: int,
        reason: str,
        *,
        expected: Iterable[str] = (),
        diagnostics: Iterable[Diagnostic] = (),
    ) -> None:
        self.format, self.text, self.position, self.reason = format, text, position, reason
        self.expected, self.diagnostics = tuple(expected), tuple(diagnostics)
        self.line, self.column, shown = locate(text, position)
        wanted = f"; expected {' or '.join(map(repr, self.expected))}" if self.expected else ""
        super().__init__(f"{format}: {reason} at line {self.line}, column {self.column}{wanted}\n{shown}")

    def __reduce__(self) -> tuple[object, ...]:
        return _parse_error, (self.format, self.text, self.position, self.reason, self.expected, self.diagnostics)


def _parse_error(
    format: str, text: str, position: int, reason: str, expected: tuple[str, ...], diagnostics: tuple[Diagnostic, ...]
) -> ParseError:
    return ParseError(format, text, position, reason, expected=expected, diagnostics=diagnostics)


def locate(text: str, position: int, *, width: int = 80) -> tuple[int, int, str]:
    """The line and column (from 1) of a position, and that line with a caret below, cut to about `width` characters."""
    position = min(max(position, 0), len(text))
    line = text.count("\n", 0, position) + 1
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    end = len(text) if end < 0 else end
    left, right = max(start, position - width // 2), min(end, position + width // 2)
    shown = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text[left:right])
    return line, position - start + 1, f"  {shown}\n  {' ' * (position - left)}^"


def parting(one: str, other: str) -> int:
    """The first position at which two texts differ."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:  # halving compares slices, which is quicker by far than going through them
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the known word that is most like `word`, or nothing."""
    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
