"""Hypothesis strategies for conversations, template options and the completions that a format's own renderer writes.

Rules of this module:

* a list of messages that is drawn here can be rendered by every format: text only, one system message at most and that first,
  every call with an id of its own, results in the order of the calls;
* a format is known only by what it says of itself: its options (`format.options`) and its markers;
* a text that a template refuses to write is drawn anew.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from functools import cache
from typing import Any, NamedTuple

from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from ..errors import Loss, RenderError
from ..format import Format, Option
from ..wire import Rendered
from .values import KEYS, NAMES, ODD_KEYS, Json, Pieces, Tools, fitting, json_values, pieces_of, schemas, texts, tools

Message = dict[str, Any]

# -------------------------------------------------------------------------------------------------- messages, conversations


@st.composite
def arguments(draw: DrawFn, tool: Mapping[str, Any] | None, pieces: Pieces = (), *, fit: bool = False) -> dict[str, Json]:
    """Arguments for a tool; unless they must `fit`, some are of the wrong type or of no schema at all."""
    properties = (tool or {}).get("function", {}).get("parameters", {}).get("properties", {})
    left_out = draw(st.sampled_from([None, None, None, *properties]))
    made = {key: draw(fitting(schema, pieces)) for key, schema in properties.items() if key != left_out}
    if not fit and draw(st.integers(0, 2)) == 0:
        keys = st.sampled_from((*KEYS, *properties) * 3 + ODD_KEYS)
        made |= draw(st.dictionaries(keys, json_values(pieces), max_size=2))
    return made


@st.composite
def calls(draw: DrawFn, number: int, tools: Tools, pieces: Pieces = (), *, fit: bool = False) -> dict[str, Any]:
    """A tool call with an id that no other call of that number has; mostly of a known tool."""
    tool = draw(st.sampled_from(tools if fit else [*tools, *tools, None])) if tools else None
    name = tool["function"]["name"] if tool else draw(st.sampled_from(NAMES))
    given: Any = draw(arguments(tool, pieces, fit=fit))
    shape = draw(st.sampled_from(("object", "object", "object", "text", "absent")))
    function = {"name": name, "arguments": json.dumps(given, ensure_ascii=False) if shape == "text" else given}
    if shape == "absent" and not given:
        del function["arguments"]
    return {"id": f"call_{number}", "type": "function", "function": function}


@cache
def contents(pieces: Pieces = ()) -> SearchStrategy[str | list[dict[str, str]]]:
    """Content of a message: mostly a string, sometimes a list of text parts."""
    part = texts(pieces, max_size=3).map(lambda text: {"type": "text", "text": text})
    whole = texts(pieces)
    return whole | whole | whole | st.lists(part, min_size=1, max_size=3)


@st.composite
def assistants(draw: DrawFn, number: int, tools: Tools, pieces: Pieces = (), *, fit: bool = False, max_calls: int = 3) -> Message:
    """An assistant turn; its calls are numbered from `number`."""
    message: Message = {"role": "assistant", "content": draw(st.none() | contents(pieces) | contents(pieces))}
    key = draw(st.sampled_from(("reasoning_content", "reasoning_content", "reasoning_content", "reasoning", "thinking", None)))
    if key:
        message[key] = draw(texts(pieces))
    count = draw(st.integers(0, max_calls)) if tools or not fit else 0
    if count:
        message["tool_calls"] = [draw(calls(number + offset, tools, pieces, fit=fit)) for offset in range(count)]
    return message


@st.composite
def message_lists(
    draw: DrawFn, tools: Tools, pieces: Pieces = (), *, fit: bool = False, max_turns: int = 2, end: str | None = None
) -> list[Message]:
    """A whole conversation that every format can render; `end="assistant"` makes a turn of the model the last one."""
    messages: list[Message] = []
    if draw(st.booleans()):
        messages.append({"role": "system", "content": draw(contents(pieces))})
    number = 0
    for _ in range(draw(st.integers(1, max_turns))):
        messages.append({"role": "user", "content": draw(contents(pieces))})
        for _ in range(draw(st.integers(0, 2))):
            turn = draw(assistants(number, tools, pieces, fit=fit))
            messages.append(turn)
            number += 3
            for call in turn.get("tool_calls", ()):
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": draw(contents(pieces))})
            if "tool_calls" not in turn:
                break
    if end == "assistant" and messages[-1]["role"] == "assistant":
        messages.append({"role": "user", "content": draw(texts(pieces))})
    if end == "assistant" or (messages[-1]["role"] != "assistant" and draw(st.booleans())):
        messages.append(draw(assistants(number, tools, pieces, fit=fit)))
    return messages


# ---------------------------------------------------------------------------------------------------------------- options

_RESPONSE_FORMATS = st.one_of(
    st.just({"type": "json_object"}),
    schemas().map(lambda schema: {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}),
    st.just({"type": "text"}),
)
_BY_PYTHON_TYPE: dict[type, SearchStrategy[Any]] = {
    bool: st.booleans(),
    str: texts(max_size=2),
    int: st.integers(0, 600),
    float: st.floats(0, 0.99),
    type(None): st.none(),
    datetime: st.datetimes(),
    date: st.dates(),
    dict: _RESPONSE_FORMATS,  # what the chat APIs call `response_format` is the one object among the options
    list: st.lists(st.sampled_from(NAMES), max_size=2),
}


#: Options that are there to make a template refuse what it would render otherwise.
REFUSING = ("allow_missing_thinking",)


def option_values(option: Option) -> SearchStrategy[Any]:
    """A value that an option of a format declares as its own."""
    if option.values:
        return st.sampled_from(list(option.values))
    return st.one_of([_BY_PYTHON_TYPE[kind] for kind in option.types])


def options(fmt: Format, *, without: Sequence[str] = ("add_generation_prompt",)) -> SearchStrategy[dict[str, Any]]:
    """Some options of a format with values of theirs."""
    left_out = {*without, *REFUSING}
    return st.fixed_dictionaries({}, optional={name: option_values(option) for name, option in fmt.options.items() if name not in left_out})


#: Codes of refusals of a text that a template does not write inside a message.
REFUSED_TEXTS = frozenset(("wire_tag_in_content", "reserved_delimiter"))


def rendered(fmt: Format, messages: list[Message], **given: Any) -> Rendered:
    """What the renderer writes; pieces that happen to make a text that the template refuses are drawn anew."""
    try:
        return fmt.render(messages, **given)
    except RenderError as error:
        if error.code not in REFUSED_TEXTS:
            raise
        reject()


# ------------------------------------------------------------------------------------------------------------ completions


class Completion(NamedTuple):
    """A completion with all that belongs to it.  `messages` ends with the turn that it was made of, if it was made of one."""

    text: str
    prompt: str
    tools: Tools | None
    messages: list[Message]
    options: dict[str, Any]
    losses: list[Loss]


@st.composite
def canonical(draw: DrawFn, fmt: Format, *, whole: bool = False, fit: bool = False, max_turns: int = 1) -> Completion:
    """What the format's own renderer writes for an assistant turn: from the generation prompt up to and with the stop token."""
    pieces = pieces_of(fmt.name, whole=whole)
    declared = draw(tools(pieces, min_size=1 if fit else 0))
    messages = draw(message_lists(declared, pieces, fit=fit, max_turns=max_turns, end="assistant"))
    chosen = draw(options(fmt))
    bare = {key: value for key, value in messages[-1].items() if key not in ("reasoning_content", "reasoning", "thinking")}
    # Not every turn can come of every prompt: where thinking is off there is no reasoning.  The format's defaults always do.
    for turn, given in ((messages[-1], chosen), (bare, chosen), (messages[-1], {}), (messages[-1] | {"content": "river"}, {})):
        written = rendered(fmt, [*messages[:-1], turn], tools=declared or None, **given)
        if span := written.sampled_spans[-1]:
            prompt, text = written.text[: span[0]], written.text[span[0] : span[1]]
            return Completion(text, prompt, declared or None, [*messages[:-1], turn], given, written.losses)
    raise AssertionError(f"{fmt.name}: with its default options a turn has no sampled span: {messages}")


# ------------------------------------------------------------------------------------------------------- -------------- cuts


@st.composite
def cuts(draw: DrawFn, text: str) -> list[str]:
    """A text cut into chunks: by the character, or at random places; a chunk may be empty."""
    if draw(st.integers(0, 3)) == 0:
        return list(text)
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
