"""The library's own strategies (`chatcodec.testing`), and besides them what only its own tests need: junk and damage.

Rules of this module:

* what is of use to others is in `chatcodec.testing`, and this module names it for the tests;
* a completion drawn here may be anything: what the renderer writes, forged, cut off, spliced, or no text of any format.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

import chatcodec
from chatcodec.grammar import markers
from chatcodec.testing.turns import (
    REFUSED_TEXTS,
    REFUSING,
    Completion,
    Message,
    arguments,
    assistants,
    calls,
    canonical,
    contents,
    cuts,
    option_values,
    options,
    rendered,
)
from chatcodec.testing.turns import message_lists as conversations
from chatcodec.testing.values import (
    KEYS,
    NAMES,
    SCALAR_TYPES,
    Json,
    Pieces,
    Tools,
    any_atom,
    fitting,
    json_values,
    pieces_of,
    scalars,
    schemas,
    texts,
    tools,
)

__all__ = [
    "KEYS",
    "NAMES",
    "REFUSED_TEXTS",
    "REFUSING",
    "SCALAR_TYPES",
    "Completion",
    "Json",
    "Message",
    "Pieces",
    "Tools",
    "arguments",
    "assistants",
    "calls",
    "canonical",
    "completions",
    "contents",
    "conversations",
    "cuts",
    "damaged",
    "fitting",
    "json_values",
    "junk",
    "junk_values",
    "option_values",
    "options",
    "pieces_of",
    "rendered",
    "scalars",
    "schemas",
    "spliced",
    "spliced_text",
    "texts",
    "tools",
]


@st.composite
def junk(draw: DrawFn, fmt: chatcodec.Format) -> Completion:
    """Random characters mixed with markers of the format, after any generation prompt."""
    literals = sorted(set(markers(fmt.name).values()))
    atoms = st.sampled_from(literals) | st.sampled_from(literals) | any_atom(pieces_of(fmt.name)) | st.sampled_from((*NAMES, *KEYS))
    return draw(_after_any_prompt(fmt, st.lists(atoms, max_size=12).map("".join)))


@st.composite
def _after_any_prompt(draw: DrawFn, fmt: chatcodec.Format, texts: SearchStrategy[str]) -> Completion:
    messages: list[Message] = [{"role": "user", "content": "hi"}]
    chosen = draw(options(fmt))
    prompt = fmt.render(messages, add_generation_prompt=True, **chosen)
    return Completion(draw(texts), prompt.text, draw(tools()) or None, messages, chosen, prompt.losses)


@st.composite
def spliced(draw: DrawFn, fmt: chatcodec.Format) -> Completion:
    """A canonical completion that is `spliced_text`, and that may be cut off behind the splice."""
    made = draw(canonical(fmt))
    return made._replace(text=draw(spliced_text(fmt, made.text, may_end=True)))


@st.composite
def spliced_text(draw: DrawFn, fmt: chatcodec.Format, text: str, *, may_end: bool = False) -> str:
    """A text of which a stretch was taken out, written twice, or replaced by another text; `may_end`: what follows may be gone."""
    positions = st.integers(0, len(text))
    start, end = sorted((draw(positions), draw(positions)))
    stretch = text[start:end]
    literals = tuple(sorted(set(markers(fmt.name).values())))
    middle = draw(st.sampled_from(("", stretch * 2)) | st.sampled_from(literals) | texts(literals, max_size=2))
    rest = text[end:] if not may_end or draw(st.integers(0, 3)) else ""
    return text[:start] + middle + rest


def completions(fmt: chatcodec.Format) -> SearchStrategy[Completion]:
    """Any completion: canonical, with forged markers, spliced, cut off, junk."""
    return canonical(fmt) | canonical(fmt, whole=True) | spliced(fmt) | spliced(fmt) | junk(fmt)


_SHAPE_KEYS = (
    "role", "content", "tool_calls", "function", "name", "arguments", "id", "type", "text", "tool_call_id", "reasoning", "parameters",
    "rol", "image",
)  # fmt: skip
_SHAPE_VALUES = ("system", "user", "assistant", "tool", "function", "text", "image", "\ud83d", float("nan"), float("inf"))


def junk_values() -> SearchStrategy[Any]:
    """Any JSON value, and what Python's `json` takes for one besides; keys and words that messages have are likely."""
    return st.recursive(
        scalars() | st.sampled_from(_SHAPE_VALUES),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_SHAPE_KEYS), inner, max_size=4),
        max_leaves=8,
    )


@st.composite
def damaged(draw: DrawFn, value: Json) -> Json:
    """A copy of a JSON value in which one place is junk, or gone."""
    if isinstance(value, dict) and value and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(value)))
        copy = {name: draw(damaged(inner)) if name == key else inner for name, inner in value.items()}
        return copy if draw(st.integers(0, 3)) else {name: inner for name, inner in copy.items() if name != key}
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        index = draw(st.integers(0, len(value) - 1))
        return [*value[:index], draw(damaged(value[index])), *value[index + 1 :]]
    return draw(junk_values())
