"""Loss masks: which tokens of a rendered conversation a model is trained on.

Rules of this module:

* `sampled` masks what the model itself wrote, stop token included, and is the default; `template` masks what the chat
  template's own generation blocks cover, as `apply_chat_template(return_assistant_tokens_mask=True)` does;
* a turn that no longer renders as it was sampled has nothing that is honest to train on: it is left out and reported;
* a token is trained on only if all of it lies in what is masked, so that no token holds a piece of the prompt.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

from .. import wire
from ..errors import CodecError, nearest
from ..wire import Rendered
from .encoding import Encoded, encode
from .tokenizer import Extent

Which = Literal["sampled", "template"]
Turns = Literal["all", "last"] | Sequence[int]

WHICH = ("sampled", "template")
#: Every kind of text that a token can be of.
KINDS = frozenset(
    (
        wire.CONTROL, wire.ROLE, wire.SYSTEM, wire.USER, wire.REASONING, wire.CONTENT, wire.RESULT, wire.CALL, wire.ARGUMENT_NAME,
        wire.ARGUMENT, wire.ARGUMENTS, wire.MEDIA, wire.TOOLS, wire.OPTION,
    )
)  # fmt: skip


class AssistantMask(list[int]):
    """1 for each token that is trained on, else 0.

    `encoded` are the tokens, `ids` their ids, `labels` the ids with -100 for what is not trained on.  `left_out` are the
    numbers of the turns that were asked for and no longer render as they were sampled.
    """

    def __init__(self, encoded: Encoded, extents: Iterable[Extent], left_out: Iterable[int]) -> None:
        mask = bytearray(len(encoded))
        for first, last in encoded.within_all(extents):
            mask[first:last] = b"\1" * (last - first)
        super().__init__(mask)
        self.encoded, self.left_out = encoded, tuple(left_out)

    @property
    def ids(self) -> list[int]:
        """The ids of all the tokens."""
        return self.encoded.ids

    @property
    def labels(self) -> list[int]:
        """The ids of the tokens that are trained on, -100 for the others."""
        return [token if trained else IGNORED for token, trained in zip(self.ids, self, strict=True)]


IGNORED = -100  #: the label that loss functions pass over


def assistant_mask(
    rendered: Rendered,
    tokenizer: Any,
    *,
    which: Which = "sampled",
    turns: Turns = "all",
    kinds: Collection[str] | None = None,
    allow_missing: bool = False,
) -> AssistantMask:
    """The loss mask of a rendered conversation, as a list of 0 and 1 with the ids beside it.

    `turns` are numbers of assistant turns, from 0 or, negative, from the end.  `kinds` restricts the mask to tokens of these
    kinds of text (`reasoning`, `content`, `call`, `argument`, …; `control` has the markers and stop tokens).  Encoding is
    that of `encode`.  Raises CodecError for a turn that is not there, an unknown kind, and `which="template"` where the
    template has no generation blocks.
    """
    return mask_of(encode(rendered, tokenizer, allow_missing=allow_missing), which=which, turns=turns, kinds=kinds)


def mask_of(encoded: Encoded, *, which: Which = "sampled", turns: Turns = "all", kinds: Collection[str] | None = None) -> AssistantMask:
    """The loss mask of what is encoded already; see `assistant_mask`."""
    rendered = encoded.rendered
    spans = _spans(rendered, which)
    chosen = _chosen(turns, len(spans))
    wanted = [span for number in chosen if (span := spans[number]) is not None]
    if kinds is not None:
        wanted = _restricted(rendered, wanted, _known(kinds))
    return AssistantMask(encoded, wanted, [number for number in chosen if spans[number] is None])


def _spans(rendered: Rendered, which: str) -> Sequence[Extent | None]:
    if which not in WHICH:
        raise CodecError(f"which must be 'sampled' or 'template', not {which!r}{nearest(str(which), WHICH)}")
    if which == "sampled":
        return rendered.sampled_spans
    if not rendered.generation_spans and rendered.sampled_spans:
        raise CodecError(
            f"{rendered.format}: the chat template has no generation blocks, so that nothing would be trained on; use 'sampled'"
        )
    return rendered.generation_spans


def _chosen(turns: Any, count: int) -> list[int]:
    if turns == "all":
        return list(range(count))
    if turns == "last":
        return [count - 1] if count else []
    if isinstance(turns, (str, bytes)) or not isinstance(turns, Iterable):
        raise CodecError(f"turns must be 'all', 'last' or a list of numbers, not {turns!r}")
    chosen = set()
    for number in turns:
        if not isinstance(number, int) or isinstance(number, bool) or not -count <= number < count:
            raise CodecError(f"turns: there is no assistant turn {number!r}; there are {count}, numbered from 0")
        chosen.add(number % count)
    return sorted(chosen)


def _known(kinds: Any) -> Collection[str]:
    if isinstance(kinds, str) or not isinstance(kinds, Collection):
        raise CodecError(f"kinds must be a set of kinds of text, not {kinds!r}")
    for kind in kinds:
        if kind not in KINDS:
            raise CodecError(f"unknown kind {kind!r}{nearest(str(kind), KINDS)}; there are {', '.join(sorted(KINDS))}")
    return kinds


def _restricted(rendered: Rendered, wanted: Sequence[Extent], kinds: Collection[str]) -> list[Extent]:
    """The stretches of these kinds, neighbours joined so that a token over both counts."""
    found: list[Extent] = []
    remaining = iter(wanted)
    current = next(remaining, None)
    for span in rendered.spans:
        while current is not None and current[1] <= span.start:
            current = next(remaining, None)
        if current is None:
            break
        if span.kind not in kinds:
            continue
        start, end = max(span.start, current[0]), min(span.end, current[1])
        if start < end:
            if found and found[-1][1] == start:
                start = found.pop()[0]
            found.append((start, end))
    return found
