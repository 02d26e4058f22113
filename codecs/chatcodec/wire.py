"""What a renderer writes.

Rules of this module:

* a renderer appends to a *wire*: a flat list of kinds and texts, `[kind, text, kind, text, …]`.  Joining the texts gives the
  prompt; spans and losses are worked out from the wire only when somebody asks for them, so that rendering stays cheap;
* a kind is one of the strings below, or a message's index (with no text) before that message's pieces, or one of the four
  signs that open and close what the template's generation block and what the model itself wrote;
* whoever writes kinds takes the module as `w`: `wire += (index, "", w.ROLE, "<|user|>", w.USER, content)`;
* the door has checked all texts but the names of arguments, which are found here if they are none.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from .errors import Loss, RenderError

if TYPE_CHECKING:
    from collections.abc import Collection

    from .format import Format
    from .tokens.encoding import Encoded
    from .tokens.masks import AssistantMask, Turns, Which

# the kinds of pieces; the first two are the format's own text, the others came from the caller
CONTROL, ROLE = "control", "role"
SYSTEM, USER, REASONING, CONTENT, RESULT = "system", "user", "reasoning", "content", "result"
CALL, ARGUMENT_NAME, ARGUMENT, MEDIA, TOOLS, OPTION = "call", "argument_name", "argument", "media", "tools", "option"
ARGUMENTS = "arguments"  #: all of a call's arguments as one JSON text
FORMATS_OWN = frozenset((CONTROL, ROLE, MEDIA))

# the signs, which have no text
SIGNS = GENERATION, GENERATION_END, SAMPLED, SAMPLED_END = -1, -2, -3, -4
OUTSIDE = -5  #: what follows belongs to no message

Wire = list[Any]


def listed(kind: str, texts: Iterable[str], opening: str, between: str) -> Wire:
    """Texts of one kind, with the format's own text before the first and between them."""
    pieces: Wire = []
    for text in texts:
        pieces += (CONTROL, between if pieces else opening, kind, text)
    return pieces


class Span(NamedTuple):
    """A stretch of a rendered text: where it stands, what it is, which message it came from.

    `control` says that the format wrote it (markers, roles, layout), `generated` that the model sampled it.
    """

    start: int
    end: int
    kind: str
    message: int | None
    control: bool
    generated: bool


class Rendered:
    """A rendered prompt.  What is worked out later is worked out from the caller's own messages: do not change them before."""

    def __init__(
        self,
        format: "Format",
        wire: Wire,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        options: Mapping[str, Any],
    ) -> None:
        try:
            self.text = "".join(wire[1::2])
        except TypeError:
            _refuse_name(format, wire)
        self.format = format.name
        self._format, self._wire, self._messages, self._tools, self._options = format, wire, messages, tools, options

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Rendered({self.format!r}, {self.text!r})"

    def encode(self, tokenizer: Any, *, allow_missing: bool = False) -> "Encoded":
        """The tokens of the text, in which only the format's own control tokens are control tokens; see `tokens.encoding.encode`."""
        from .tokens.encoding import encode

        return encode(self, tokenizer, allow_missing=allow_missing)

    def assistant_mask(
        self,
        tokenizer: Any,
        *,
        which: "Which" = "sampled",
        turns: "Turns" = "all",
        kinds: "Collection[str] | None" = None,
        allow_missing: bool = False,
    ) -> "AssistantMask":
        """The loss mask of the tokens; see `tokens.masks.assistant_mask`."""
        from .tokens.masks import assistant_mask

        return assistant_mask(self, tokenizer, which=which, turns=turns, kinds=kinds, allow_missing=allow_missing)

    @cached_property
    def spans(self) -> list[Span]:
        """Every stretch of the text, in order and without gaps."""
        spans = []
        position, message, generated = 0, None, False
        for kind, text in self._pieces():
            if isinstance(kind, int):
                if kind >= OUTSIDE and kind not in (GENERATION, GENERATION_END):
                    message = kind if kind >= 0 else None if kind == OUTSIDE else message
                    generated = kind == SAMPLED or (generated and kind != SAMPLED_END)
            elif text:
                end = position + len(text)
                spans.append(Span(position, end, kind, message, kind in FORMATS_OWN, generated))
                position = end
        return spans

    @cached_property
    def generation_spans(self) -> list[tuple[int, int]]:
        """What the template's own generation blocks cover; empty where the template has none."""
        borders = (place for kind, place in self._signs() if kind in (GENERATION, GENERATION_END))
        return list(zip(borders, borders, strict=True))

    @cached_property
    def sampled_spans(self) -> list[tuple[int, int] | None]:
        """For each assistant message what the model wrote, stop token included; None if it no longer renders as it was sampled."""
        turns = [message["role"] == "assistant" for message in self._messages]
        found: list[tuple[int, int] | None] = []
        start = 0
        for kind, place in self._signs():
            if kind >= 0:
                if turns[kind]:
                    found.append(None)
            elif kind == SAMPLED:
                start = place
            elif kind == SAMPLED_END:
                found[-1] = (start, place)
        return found

    @cached_property
    def losses(self) -> list[Loss]:
        """What this text cannot give back."""
        from .losses import losses_of

        return losses_of(self._format, self._wire, self._messages, self._tools, self._options)

    def _pieces(self) -> Iterator[tuple[Any, str]]:
        return zip(self._wire[::2], self._wire[1::2], strict=True)

    def _signs(self) -> list[tuple[int, int]]:
        """The signs and message indices of the wire, and where they stand."""
        places = accumulate(map(len, self._wire[1::2]), initial=0)
        return [(kind, place) for kind, place in zip(self._wire[::2], places, strict=False) if type(kind) is int]


def _refuse_name(format: "Format", wire: Wire) -> NoReturn:
    """Name the argument whose name is no string."""
    message, call, code = -1, -1, "arguments_not_mapping"
    for kind, text in zip(wire[::2], wire[1::2], strict=True):
        if isinstance(kind, int):
            message, call = (kind, -1) if kind >= 0 else (message, call)
        elif kind == CALL:
            call += 1
        elif not isinstance(text, str):
            break
    path, detail = f"messages[{message}].tool_calls[{call}].function.arguments", f"an argument's name must be a string, not {text!r}"
    raise RenderError(format.name, path, code, detail, reason=format.words.get(code)) from None
