"""Hypothesis strategies narrowed to one format: the conversations that it can carry, the completions that it writes.

Rules of this module: formats are given by name or as they are; what a format can carry is asked of the format itself, by
rendering and reading back, so that no format is known here by name.
"""

from typing import Any

from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from ..errors import ParseError
from ..format import Format
from ..formats import get_format
from ..messages import Conversation
from . import turns
from .asserting import assert_round_trip
from .turns import Completion, message_lists, rendered
from .values import pieces_of, tools

MEDIA = ("image", "audio", "video")


def conversations(format: str | Format, *, exact: bool = False, media: bool = True, max_turns: int = 2) -> SearchStrategy[Conversation]:
    """Conversations that a format can write, with tools and options; their texts are full of what trips up codecs.

    `exact`: only those that come back from their text exactly as they are, so that any reader of the format can be held to
    them.  `media`: with images and the like too, where the format knows them.  `max_turns` are the turns of the user.
    """
    codec = get_format(format) if isinstance(format, str) else format

    @st.composite  # within, so that what Hypothesis prints of it does not hold a whole format
    def conversations_of_format(draw: DrawFn) -> Conversation:
        return _conversation(draw, codec, exact, media, max_turns)

    return conversations_of_format()


def _conversation(draw: DrawFn, format: Format, exact: bool, media: bool, max_turns: int) -> Conversation:
    pieces = pieces_of(format.name)
    declared = draw(tools(pieces))
    messages = draw(message_lists(declared, pieces, max_turns=max_turns))
    kinds = [kind for kind in MEDIA if kind in format.parts] if media else []
    if kinds and draw(st.integers(0, 3)) == 0:
        message = draw(st.sampled_from([message for message in messages if message["role"] == "user"]))
        given = message["content"]
        parts = given if isinstance(given, list) else [{"type": "text", "text": given}]
        message["content"] = [*parts, {"type": draw(st.sampled_from(kinds))}]
    chosen = draw(turns.options(format, without=()))
    written = rendered(format, messages, tools=declared or None, **chosen)
    if not exact:
        return Conversation.model_validate({"messages": messages, "tools": declared or None, "options": chosen})
    # What is read from a text is what the text can carry; only a text that forges markers may tell another story.
    try:
        carried = format.parse_prompt(written.text)
    except ParseError:
        reject()
    try:
        assert_round_trip(format, carried, exact=True)
    except AssertionError:
        reject()
    return carried


def completions(format: str | Format, *, forged: bool = False) -> SearchStrategy[Completion]:
    """What the format's renderer writes for an assistant turn, from the generation prompt up to and with the stop token.

    With `prompt`, `tools`, `messages` (the last is the turn itself), `options` and `losses` beside the `text`.  `forged`:
    texts may hold whole markers of the format, so that reading them back as text is beyond any parser.
    """
    codec = get_format(format) if isinstance(format, str) else format

    @st.composite
    def completions_of_format(draw: DrawFn) -> Completion:
        return draw(turns.canonical(codec, whole=forged))

    return completions_of_format()


def options(format: str | Format) -> SearchStrategy[dict[str, Any]]:
    """Some of the format's template options, with values that it declares as its own."""
    return turns.options(get_format(format) if isinstance(format, str) else format, without=())
