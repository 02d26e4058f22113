"""From a rendered text to token ids, so that no text of a message, a tool or an option can forge a control token.

Rules of this module:

* a control token is one of the format's `special_tokens` or whatever the tokenizer itself calls special.  One that stands in
  what the format wrote is encoded as itself; one that stands in what came from the caller is encoded as any other text;
* the text is cut at the format's own control tokens and nowhere else, so that it is encoded as the tokenizer alone would;
  where nothing is forged the ids are those of the tokenizer for the whole text, and this is how they are made;
* what is forged is known by the ids: the control tokens among them must be exactly those that the format wrote;
* a token belongs to the piece of text in which it begins, and is sampled only if the model sampled all of it.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import CodecError
from ..wire import FORMATS_OWN, USER, Rendered, Wire
from .tokenizer import Adapter, Encode, Extent, Extents, Part, Where, adapt, check_text

if TYPE_CHECKING:
    from ..format import Format

_NEAR = 2  #: tokens between a border and the control token before it, as a rule
_MOST_RUNS = 4096  #: of the format's own text that are remembered; what a format writes between texts is little


class Encoded:
    """The tokens of a rendered text.

    `ids` are their ids.  `offsets`, `messages`, `kinds` and `sampled` say of each where it stands in the text, the index of
    the message that it belongs to (None: no message), the kind of text, and whether the model sampled it; they are worked
    out when they are asked for.  `controls` are the numbers of the tokens that are the format's own control tokens.
    """

    def __init__(self, rendered: Rendered, ids: list[int], known: "Controls", controls: list[int], extents: Extents) -> None:
        self.rendered, self.ids, self.controls = rendered, ids, controls
        self._known, self._extents = known, extents
        self._kept: tuple[int, tuple[int, int, Where]] = (-1, (0, 0, _nowhere(0, 0, 0)))

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Encoded({self.rendered.format!r}, {len(self.ids)} tokens)"

    @cached_property
    def _ends(self) -> list[int]:
        """Where the format's own control tokens end in the text."""
        return self._known.ends(self.rendered, len(self.controls))

    def _begin(self, number: int) -> int:
        """Where a control token begins."""
        return self._ends[number] - self._known.lengths[self.ids[self.controls[number]]]

    @cached_property
    def offsets(self) -> list[Extent]:
        """Where each token stands in the text."""
        found: list[Extent] = []
        for number in range(len(self.controls) + 1):
            first, last, where = self._stretch(number)
            found += map(where, range(first, last))
            if number < len(self.controls):
                found.append((self._begin(number), self._ends[number]))
        return found

    @cached_property
    def messages(self) -> list[int | None]:
        """The message of each token."""
        return self._spread([span.message for span in self.rendered.spans])

    @cached_property
    def kinds(self) -> list[str]:
        """The kind of text of each token; `chatcodec.wire` names them."""
        return self._spread([span.kind for span in self.rendered.spans])

    @cached_property
    def sampled(self) -> list[bool]:
        """Whether the model sampled each token."""
        found = [False] * len(self.ids)
        for first, last in self.within_all(filter(None, self.rendered.sampled_spans)):
            found[first:last] = [True] * (last - first)
        return found

    def within(self, start: int, end: int) -> tuple[int, int]:
        """The first of the tokens that stand wholly in a stretch of the text, and the one behind the last."""
        return next(self.within_all(((start, end),)))

    def within_all(self, stretches: Iterable[Extent]) -> Iterator[tuple[int, int]]:
        """The same for each of several stretches."""
        ends, controls = self._ends, self.controls
        for start, end in stretches:
            number = bisect_right(ends, start)
            first = controls[number - 1] + 1 if number and ends[number - 1] == start else self._first(start, number)
            number = bisect_right(ends, end, number)
            past = controls[number - 1] + 1 if number and ends[number - 1] == end else self._past(end, number)
            yield first, max(first, past)

    def _spread(self, values: Sequence[Any]) -> list[Any]:
        """A value of every span, for each token that begins in it."""
        firsts = [first for first, _ in self.within_all((span.start, span.start) for span in self.rendered.spans)]
        found: list[Any] = []
        for value, (first, last) in zip(values, pairwise((*firsts, len(self.ids))), strict=True):
            found += [value] * (last - first)
        return found

    def _stretch(self, number: int) -> tuple[int, int, Where]:
        """The tokens before a control token: the first, the one behind the last, and where each stands."""
        if number == self._kept[0]:  # what was asked for last: where its tokens stand is worked out only once
            return self._kept[1]
        first = self.controls[number - 1] + 1 if number else 0
        last = self.controls[number] if number < len(self.controls) else len(self.ids)
        found = first, last, self._extents(first, last, self._ends[number - 1] if number else 0)
        self._kept = number, found
        return found

    def _first(self, position: int, number: int) -> int:
        """The first token that begins at a position or behind it; `number` control tokens end before that, none right there."""
        if number < len(self._ends) and (begin := self._begin(number)) <= position:
            return self.controls[number] + (begin < position)
        if not position:
            return 0
        first, last, where = self._stretch(number)
        found = _reach(first, last, where, 0, position)
        # A tokenizer that passes over blanks leaves a gap, which is part of the token behind it.
        return found + (first < found < last and where(found)[0] > position > where(found - 1)[1])

    def _past(self, position: int, number: int) -> int:
        """How many tokens end at a position or before it; `number` control tokens do before, none right there."""
        if number < len(self._ends) and self._begin(number) <= position:
            return self.controls[number]
        if not position:
            return 0
        first, last, where = self._stretch(number)
        return _reach(first, last, where, 1, position + 1)


def _reach(first: int, last: int, where: Where, side: int, position: int) -> int:
    """The first token that begins (0) or ends (1) at a position or behind it: looked for near the beginning, in growing steps."""
    near = min(last, first + _NEAR)
    while first < near:
        if where(first)[side] >= position:
            return first
        first += 1
    step = 1
    while first + step <= last and where(first + step - 1)[side] < position:
        first, step = first + step, step * 2
    return bisect_left(range(first, min(last, first + step)), position, key=lambda token: where(token)[side]) + first


def encode(rendered: Rendered, tokenizer: Any, *, allow_missing: bool = False) -> Encoded:
    """The tokens of a rendered text.

    `tokenizer` is a `tokenizers.Tokenizer`, a fast tokenizer of `transformers` or a `tiktoken.Encoding`, and is not changed.
    It must have a token of its own for every control token that the text needs; with `allow_missing` one that it lacks is
    encoded as text, which user text can then forge.  Raises CodecError.
    """
    adapter = adapt(tokenizer)
    check_text(rendered.text)
    controls = controls_of(rendered._format, adapter)
    wanted = controls.wanted(rendered, allow_missing)
    return _safe(rendered, controls, wanted, adapter.whole(rendered.text) if controls.plain else None)


def encode_batch(rendereds: Iterable[Rendered], tokenizer: Any, *, allow_missing: bool = False) -> list[Encoded]:
    """The tokens of several texts; the tokenizer may encode them side by side.  Otherwise like `encode`."""
    adapter, rendereds = adapt(tokenizer), list(rendereds)
    known = [controls_of(rendered._format, adapter) for rendered in rendereds]
    for rendered in rendereds:
        check_text(rendered.text)
    wanted = [controls.wanted(rendered, allow_missing) for controls, rendered in zip(known, rendereds, strict=True)]
    parts = adapter.wholes([rendered.text for rendered in rendereds])
    return [
        _safe(rendered, controls, ids, part if controls.plain else None)
        for rendered, controls, ids, part in zip(rendereds, known, wanted, parts, strict=True)
    ]


def _safe(rendered: Rendered, controls: "Controls", wanted: list[int], part: Part | None) -> Encoded:
    """The plain encoding of a text where its control tokens are those that the format wrote, else a safe one."""
    if part is not None:
        places = controls.among(part.ids)
        if [part.ids[place] for place in places] == wanted:
            return Encoded(rendered, part.ids, controls, places, part.extents)
    places = []
    ids: list[int] = []
    parts: list[Part] = []
    firsts: list[int] = []
    position = 0
    for token, (start, end) in zip((*wanted, None), (*controls.places(rendered._wire), (len(rendered.text), 0)), strict=True):
        parts.append(_ordinary(rendered.text[position:start], controls) if position < start else Part([], _nowhere))
        firsts.append(len(ids))
        ids += parts[-1].ids
        if token is not None:
            places.append(len(ids))
            ids.append(token)
        position = end
    return Encoded(
        rendered, ids, controls, places, lambda first, last, start: _moved(parts[bisect_left(firsts, first)], first, last, start)
    )


def _moved(part: Part, first: int, last: int, start: int) -> Where:
    """Where the tokens of a stretch stand in the whole text."""
    where = part.extents(0, last - first, 0)

    def moved(token: int) -> Extent:
        one, other = where(token - first)
        return start + one, start + other

    return moved


def _nowhere(first: int, last: int, start: int) -> Where:
    return lambda token: (start, start)


def _ordinary(text: str, controls: "Controls") -> Part:
    """A text without any control token, not even one that the tokenizer's model holds among its own vocabulary."""
    part = controls.ordinary(text)
    if controls.ids.isdisjoint(part.ids):
        return part
    where = part.extents(0, len(part.ids), 0)
    extents = [where(number) for number, token in enumerate(part.ids) if token in controls.ids]
    if any(end - start < 2 for start, end in extents):
        raise CodecError(f"the tokenizer makes a control token of the text {text[slice(*extents[0])]!r}, whatever stands around it")
    cuts = sorted({0, len(text), *((start + end) // 2 for start, end in extents)})  # each in two, so that there is an end to it
    ids: list[int] = []
    found: list[Extent] = []
    for start, end in pairwise(cuts):
        piece = _ordinary(text[start:end], controls)
        ids += piece.ids
        inner = piece.extents(0, len(piece.ids), 0)
        found += [(start + one, start + other) for one, other in map(inner, range(len(piece.ids)))]
    return Part(ids, lambda first, last, start: found.__getitem__)


# ----------------------------------------------------------------------------------------------- what the format wrote


class Controls:
    """The control tokens of a format in a tokenizer.

    `ids` are theirs and those of the tokenizer's other special tokens, `lengths` the lengths of their texts by id.  `ordinary`
    encodes text that holds none, and `plain` says that the tokenizer's own encoding can be trusted: no token of its reaches into
    a control token.
    """

    def __init__(self, format: "Format", adapter: Adapter) -> None:
        self.format = format.name
        own = {token: adapter.known[token] for token in format.special_tokens if token in adapter.known}
        self._ids: Mapping[str, int] = {**adapter.special, **own}
        self.ids = frozenset(self._ids.values())
        self._least = min(self.ids, default=0)  # most vocabularies have them at their end
        self.lengths = {number: len(token) for token, number in self._ids.items()}
        self.ordinary: Encode = adapter.without(frozenset(self._ids))
        self._lacking = not own.keys() >= set(format.special_tokens)
        self.plain = not any(_overlap(token, control) for control in self._ids for token in adapter.known if token != control)
        self._search = _finder({*self._ids, *format.special_tokens})
        self._search_own = _finder(own)
        self._runs: dict[str, _Run] = {}

    def among(self, ids: list[int]) -> list[int]:
        """The numbers of the control tokens among tokens."""
        known, least = self.ids, self._least
        return [number for number, token in enumerate(ids) if token >= least and token in known]

    def wanted(self, rendered: Rendered, allow_missing: bool) -> list[int]:
        """The ids of the control tokens that the format wrote.  Raises CodecError for one that the tokenizer lacks."""
        found = self.written(rendered._wire)
        if self._lacking and not allow_missing and (missing := self._missing(rendered._wire)):
            raise CodecError(
                f"{self.format}: the tokenizer has no token of its own for {', '.join(map(repr, dict.fromkeys(missing)))}; add it to the "
                "tokenizer, or have it encoded as text with allow_missing=True"
            )
        return found

    def _missing(self, wire: Wire) -> list[str]:
        own = "".join(text if kind in FORMATS_OWN or not text else " " for kind, text in zip(wire[::2], wire[1::2], strict=True))
        return self._run(own).missing

    def written(self, wire: Wire) -> list[int]:
        """The ids of the control tokens that the format wrote."""
        found: list[int] = []
        known, run = self._runs, ""
        for kind, text in zip(wire[::2], wire[1::2], strict=True):
            if kind in FORMATS_OWN:
                run += text  # pieces of the format's own that stand side by side
            elif text and run:
                found += (known.get(run) or self._run(run)).ids
                run = ""
        return found + self._run(run).ids

    def ends(self, rendered: Rendered, count: int) -> list[int]:
        """Where they end.

        No control token reaches into another where the tokenizer is `plain`, so if the text holds no more of them than the `count`
        that the format wrote, all are the format's, and finding them is quicker than walking the wire.
        """
        found = [match.end() for match in self._search_own(rendered.text)] if self.plain else []
        return found if len(found) == count else [end for _, end in self.places(rendered._wire)]

    def places(self, wire: Wire) -> list[Extent]:
        """Where they stand, whatever else the text holds."""
        found: list[Extent] = []
        run, begin = "", 0
        known = self._runs
        starts = accumulate(map(len, wire[1::2]), initial=0)
        for kind, text, start in zip((*wire[::2], USER), (*wire[1::2], "-"), starts, strict=True):
            if kind in FORMATS_OWN:
                if not run:
                    begin = start
                run += text
            elif text and run:
                for first, last in (known.get(run) or self._run(run)).places:
                    found.append((begin + first, begin + last))
                run = ""
        return found

    def _run(self, run: str) -> "_Run":
        known = self._runs.get(run)
        if known is None:
            if len(self._runs) >= _MOST_RUNS:
                self._runs.clear()
            here = [(found[0], found.span()) for found in self._search(run)]
            there = [(token, span) for token, span in here if token in self._ids]
            missing = [token for token, _ in here if token not in self._ids]
            known = self._runs[run] = _Run([self._ids[token] for token, _ in there], [span for _, span in there], missing)
        return known


def _finder(literals: Iterable[str]) -> Callable[[str], Iterator[re.Match[str]]]:
    return re.compile("|".join(map(re.escape, sorted(literals, key=len, reverse=True))) or r"(?!)").finditer


class _Run(NamedTuple):
    """The control tokens in a run of the format's own text: their ids, their places, and those that the tokenizer lacks."""

    ids: list[int]
    places: list[Extent]
    missing: list[str]


def controls_of(format: "Format", adapter: Adapter) -> Controls:
    """The control tokens of a format in a tokenizer, worked out once."""
    found = adapter.kept.get(format.name)
    if not isinstance(found, Controls):
        found = adapter.kept[format.name] = Controls(format, adapter)
    return found


def _overlap(token: str, control: str) -> bool:
    """Whether a token may take a part of a control token with it: one holds the other, or ends in the other's beginning."""
    if control[:1] not in token[1:] and token[:1] not in control[1:]:
        return False
    if control in token or token in control:
        return True
    shorter = min(len(token), len(control))
    return any(token[-size:] == control[:size] or control[-size:] == token[:size] for size in range(1, shorter))
