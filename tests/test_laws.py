"""The laws of the codec, as properties of every registered format.

1. What a text can give back it gives back: `parse(render(m)) == m` but for the losses named, and every loss named is one.
2. Any cut of a text gives the same reply, and the same events once adjacent deltas are joined.
3. Nothing vanishes: outside the segments there are only markers, blanks, and what a diagnostic points at.
4. Rendering, parsing and rendering again changes nothing.
5. Junk raises nothing but the library's own errors.
6. (`test_oracle.py`, `test_vectors.py`: render is the chat template.)
7. `parse_prompt` undoes a whole prompt but for the losses named.

Formats differ in what they lose, not in the laws; a format is in these tests by being registered.
"""

import copy
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import chatcodec
import strategies as make
from chatcodec import Loss
from chatcodec.grammar import markers
from limits import at_most
from strategies import Completion, Message

formats = pytest.mark.parametrize("name", chatcodec.list_formats())
FINISH_REASONS = (None, "stop", "length")
POLICIES = ("recover", "strict", "raw")
REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")

# ------------------------------------------------------------------------------------------------- what a loss may explain

#: Losses that name what the reader cannot know from the text; nothing that is compared here differs by them.
UNSEEN = frozenset(("tool_call_id_dropped", "option_ignored", "ends_with_assistant"))
#: The text forges a marker: whatever is written from that place on may be read as something else.
FORGED = frozenset(("control_token_in_content", "control_token_in_argument"))
#: A message that leaves no trace.
GONE = frozenset(("message_dropped", "message_rendered_empty", "system_merged"))


def _plain(path: str) -> str:
    return path.replace(".function.", ".")


def _joined(content: Any) -> Any:
    if isinstance(content, list) and all(part.get("type") == "text" for part in content):
        return "".join(part["text"] for part in content)
    return content


def _fields(message: Message, path: str) -> Iterator[tuple[str, Any, bool]]:
    """What a text should give back of a message, in the order in which formats write it: path, value, and whether a loss
    of something within the value is one of the value."""
    yield f"{path}.role", message["role"], False
    yield f"{path}.reasoning_content", next((message[key] for key in REASONING_KEYS if message.get(key) is not None), None), False
    yield f"{path}.content", _joined(message.get("content")), True
    calls = message.get("tool_calls") or []
    for number, call in enumerate(calls):
        function, where = call["function"], f"{path}.tool_calls[{number}]"
        given = function.get("arguments") or {}
        arguments = json.loads(given) if isinstance(given, str) else given
        yield f"{where}.name", function["name"], False
        yield f"{where}.arguments", list(arguments), False
        for key, value in arguments.items():
            yield f"{where}.arguments.{key}", json.dumps(value), True  # as JSON, 1, 1.0 and true are three values
    yield f"{path}.tool_calls", len(calls), False


def unexplained(
    given: Message, read: Message, losses: Sequence[Loss], path: str, *, exactly: bool = False, cautious: Set[str] = frozenset()
) -> list[str]:
    """The differences between a message and what was read back that no loss names; `exactly`: and the losses that are none,
    but for the codes in `cautious`.

    A difference is accepted where a loss has the path of the field.  Two losses reach further: a forged marker spoils all
    that is written behind it, which may be read as more of the texts before it, and where a template cuts reasoning out of
    content, both differ.
    """
    if any(loss.code in FORGED and loss.path == path for loss in losses):
        return []  # the message itself is read as something else
    after = {field: value for field, value, _ in _fields(read, path)}
    forged = any(loss.code in FORGED for loss in _within(losses, path))
    found: list[str] = []
    for field, value, deep in _fields(given, path):
        within = _within(losses, field)
        if any(loss.code in FORGED for loss in within) or (forged and field == f"{path}.role" and after[field] != value):
            break  # a forged marker may make it a message of another role
        named = {loss.code for loss in within if deep or _plain(loss.path) == field} - UNSEEN
        if field == f"{path}.reasoning_content" and any(loss == "content_lost" and place == f"{path}.content" for loss, place, _ in losses):
            continue
        if forged and field in (f"{path}.reasoning_content", f"{path}.content") and (after[field] or "").startswith(value or ""):
            continue
        if field not in after:
            found.append(f"{field}: {value!r} was not read back")
        elif after[field] != value and not named:
            found.append(f"{field}: {value!r} was read back as {after[field]!r}")
        elif exactly and after[field] == value and named - cautious:
            found.append(f"{field}: {value!r} was read back as it was, but {sorted(named)} is named")
    return found


def _within(losses: Iterable[Loss], path: str) -> list[Loss]:
    return [loss for loss in losses if _plain(loss.path) == path or _plain(loss.path).startswith((f"{path}.", f"{path}["))]


# --------------------------------------------------------------------------------------------------- 1. parse undoes render


@formats
@given(data=st.data())
def test_parse_undoes_render(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    made = data.draw(make.canonical(fmt) | make.canonical(fmt, whole=True))
    path = f"messages[{len(made.messages) - 1}]"
    reply = fmt.parse(made.text, tools=made.tools, prompt=made.prompt)
    turn, losses = _as_sampled(fmt, made, _within(made.losses, path), path)
    # where the tools at hand say more of types than the prompt shows, the losses speak of a reader of the prompt too
    cautious = frozenset(("value_type_lost",) if fmt.declared is not None and made.tools else ())
    assert unexplained(turn, reply.message.model_dump(), losses, path, exactly=True, cautious=cautious) == []
    if not any(loss.code in FORGED for loss in losses):
        assert reply.partial is None
        assert reply.finish_reason == ("tool_calls" if turn.get("tool_calls") else "stop")


def _as_sampled(fmt: chatcodec.Format, made: Completion, losses: list[Loss], path: str) -> tuple[Message, list[Loss]]:
    """The turn as its completion tells it: where the prompt has closed the thinking, empty reasoning is in the prompt."""
    turn = made.messages[-1]
    if any(turn.get(key) for key in REASONING_KEYS) or fmt.parse("x", prompt=made.prompt).message.content != "x":
        return turn, losses
    bare = {key: value for key, value in turn.items() if key not in REASONING_KEYS}
    return bare, [loss for loss in losses if loss.path != f"{path}.reasoning_content"]


@formats
@given(data=st.data())
def test_a_canonical_text_has_no_diagnostics(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    made = data.draw(make.canonical(fmt, fit=True))
    if not _within(made.losses, f"messages[{len(made.messages) - 1}]"):
        reply = fmt.parse(made.text, tools=made.tools, prompt=made.prompt, policy="strict")
        assert {diagnostic.code for diagnostic in reply.diagnostics} <= {"untyped", "ambiguous_null"}


@formats
def test_a_plain_conversation_loses_only_its_ids(name: str) -> None:
    """The laws forgive what a loss names, so that nothing may be named without need."""
    call = {
        "id": "1",
        "type": "function",
        "function": {"name": "f", "arguments": {"city": "Oslo", "days": 3, "exact": True, "of": [1.5, None]}},
    }
    properties = {"city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"}, "of": {"type": "array"}}
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": properties}}}
    messages: list[Message] = [
        {"role": "system", "content": "Be brief: a < b > c, 'x' and </y>."},
        {"role": "user", "content": "What is {} or <thing>?\n\nLine two."},
        {"role": "assistant", "reasoning_content": "I'll look\nit up.", "content": "One moment.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": '{"rain": false}'},
        {"role": "assistant", "reasoning_content": "No rain.", "content": "It is <b>dry</b>.\n\nEnjoy > 3 days."},
    ]
    rendered = chatcodec.get_format(name).render(messages, tools=[tool])
    assert {loss.code for loss in rendered.losses} <= {"tool_call_id_dropped", "schema_dropped", "content_dropped", "key_order_lost"}


# ------------------------------------------------------------------------------------------------------------ 2. any cut


def _coalesced(events: Iterable[Any]) -> list[tuple[Any, ...]]:
    """The events as tuples, adjacent deltas of one kind and index joined."""
    joined: list[tuple[Any, ...]] = []
    for item in events:
        kind = type(item).__name__
        head = (kind, getattr(item, "index", None))
        if kind.endswith("Delta") and joined and joined[-1][:2] == head:
            joined[-1] = (*head, joined[-1][2] + item.text)
        elif kind.endswith("Delta"):
            joined.append((*head, item.text))
        else:
            joined.append((*head, repr(item)))
    return joined


def _reply(reply: chatcodec.Reply) -> dict[str, Any]:
    return {
        "message": reply.message.model_dump(),
        "arguments": [json.dumps(call.arguments) for call in reply.message.tool_calls],
        "segments": list(reply.segments),
        "diagnostics": list(reply.diagnostics),
        "partial": reply.partial,
        "finish_reason": reply.finish_reason,
    }


def _streamed(fmt: chatcodec.Format, chunks: Iterable[str], finish_reason: Any, given: dict[str, Any]) -> tuple[Any, Any]:
    """The reply and the events of a stream, or where and why it was refused."""
    try:
        stream = fmt.stream(**given)
        events = [item for chunk in chunks for item in stream.feed(chunk)]
        events += stream.close(finish_reason)
    except chatcodec.ParseError as error:
        return "refused", error.reason
    return _reply(stream.reply), _coalesced(events)


@formats
@given(data=st.data())
def test_any_cut_gives_the_same(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    made = data.draw(make.completions(fmt))
    finish_reason: Any = data.draw(st.sampled_from(FINISH_REASONS))
    policy, infer_types = data.draw(st.sampled_from(POLICIES)), data.draw(st.booleans())
    given: dict[str, Any] = {"tools": made.tools, "prompt": made.prompt, "policy": policy, "infer_types": infer_types}
    try:
        whole: Any = _reply(fmt.parse(made.text, finish_reason=finish_reason, **given))
    except chatcodec.ParseError as error:
        event("refused")
        whole = "refused"
        assert 0 <= error.position <= len(made.text)
    reply, events = _streamed(fmt, [made.text], finish_reason, given)
    assert reply == whole
    assert _streamed(fmt, data.draw(make.cuts(made.text)), finish_reason, given) == (reply, events)


@formats
@given(data=st.data())
def test_events_tell_the_reply(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    made = data.draw(make.completions(fmt))
    stream = fmt.stream(tools=made.tools, prompt=made.prompt)
    events = [item for chunk in data.draw(make.cuts(made.text)) for item in stream.feed(chunk)]
    events += stream.close(data.draw(st.sampled_from(FINISH_REASONS)))
    reply = stream.reply
    assert "".join(item.text for item in events if isinstance(item, chatcodec.ContentDelta)) == (_joined(reply.message.content) or "")
    assert [item.diagnostic for item in events if isinstance(item, chatcodec.Diagnosed)] == list(reply.diagnostics)
    if not any(diagnostic.code == "reasoning_joined" for diagnostic in reply.diagnostics):
        assert "".join(item.text for item in events if isinstance(item, chatcodec.ReasoningDelta)) == (
            reply.message.reasoning_content or ""
        )
    started = {item.index: item.name for item in events if isinstance(item, chatcodec.ToolCallStart)}
    ended = [item.index for item in events if isinstance(item, chatcodec.ToolCallEnd)]
    dropped = [item.index for item in events if isinstance(item, chatcodec.ToolCallDropped)]
    assert sorted([*ended, *dropped]) == sorted(started), "a started call ends or is dropped, once"
    assert ended == sorted(ended)
    told = []
    for index in ended:
        text = "".join(item.text for item in events if isinstance(item, chatcodec.ArgumentsDelta) and item.index == index)
        told.append((started[index], json.loads(text)))
    assert repr(told) == repr([(call.name, call.arguments) for call in reply.message.tool_calls])


# ---------------------------------------------------------------------------------------------------- 3. nothing vanishes


def _left(text: str, taken: Iterable[tuple[int, int]]) -> list[str]:
    """The stretches of a text that lie outside some spans."""
    pieces, position = [], 0
    for start, end in sorted(span for span in taken if span[0] < span[1]):
        if position < start:
            pieces.append(text[position:start])
        position = max(position, end)
    return [*pieces, text[position:]]


def _layout(name: str) -> Callable[[str], bool]:
    """Whether a text consists of the markers of a format and blanks."""
    literals = sorted(set(markers(name).values()), key=len, reverse=True)
    pattern = re.compile(rf"(?:\s|{'|'.join(map(re.escape, literals))})*")
    return lambda text: pattern.fullmatch(text) is not None


@formats
@given(data=st.data())
def test_nothing_vanishes(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    made = data.draw(make.completions(fmt))
    reply = fmt.parse(made.text, tools=made.tools, prompt=made.prompt, finish_reason=data.draw(st.sampled_from(FINISH_REASONS)))
    spans = [segment.span for segment in reply.segments]
    assert all(0 <= start <= end <= len(made.text) for start, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert [segment.call for segment in reply.segments if segment.kind == "call"] == list(range(len(reply.message.tool_calls)))
    for segment in reply.segments:
        if segment.kind != "call":
            assert segment.text == made.text[slice(*segment.span)]
    for diagnostic in reply.diagnostics:
        assert 0 <= diagnostic.span[0] <= diagnostic.span[1] <= len(made.text)
    is_layout = _layout(name)
    left = _left(made.text, [*spans, *(diagnostic.span for diagnostic in reply.diagnostics)])
    assert [piece for piece in left if not is_layout(piece)] == []


@formats
@given(data=st.data())
def test_a_canonical_text_is_segments_and_markers(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    made = data.draw(make.canonical(fmt))
    reply = fmt.parse(made.text, tools=made.tools, prompt=made.prompt)
    is_layout = _layout(name)
    if not any(loss.code in FORGED for loss in made.losses):
        assert [piece for piece in _left(made.text, (segment.span for segment in reply.segments)) if not is_layout(piece)] == []


@formats
@given(data=st.data())
def test_spans_of_a_render(name: str, data: st.DataObject) -> None:
    """Spans cover the text without a gap; a sampled span begins where the generation prompt of that turn ends."""
    fmt = chatcodec.get_format(name)
    tools = data.draw(make.tools())
    messages = data.draw(make.conversations(tools, make.pieces_of(name)))
    given = data.draw(make.options(fmt))
    rendered = make.rendered(fmt, messages, tools=tools, **given, add_generation_prompt=data.draw(st.booleans()))
    position = 0
    for span in rendered.spans:
        assert span.start == position < span.end
        assert span.message is None or 0 <= span.message < len(messages)
        position = span.end
    assert position == len(rendered.text)
    turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    assert len(rendered.sampled_spans) == len(turns)
    for index, sampled in zip(turns, rendered.sampled_spans, strict=True):
        if sampled is not None:
            # what stands before may have been rewritten since: some templates drop earlier reasoning
            before, opened = (fmt.render(messages[:index], tools=tools, **given, add_generation_prompt=flag).text for flag in (False, True))
            assert opened.startswith(before)
            assert rendered.text[: sampled[0]].endswith(opened[len(before) :])
    generated = [(span.start, span.end) for span in rendered.spans if span.generated]
    assert _merged(generated) == _merged([span for span in rendered.sampled_spans if span is not None])


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans with those that touch made one."""
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


# ------------------------------------------------------------------------------------------------------------ 4. fixpoint


def _rendered(fmt: chatcodec.Format, made: Completion, message: chatcodec.Message) -> chatcodec.Rendered:
    """A reply as the last turn of its conversation; some formats want an id on every call."""
    turn = message.model_dump()
    for number, call in enumerate(turn.get("tool_calls", ())):
        call["id"] = f"again_{number}"
    before = made.messages[:-1] if made.messages[-1]["role"] == "assistant" else made.messages
    return fmt.render([*before, turn], tools=made.tools, **made.options)


@formats
@given(data=st.data())
def test_rendering_what_was_parsed_is_a_fixpoint(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    made = data.draw(make.completions(fmt))
    try:
        once = _rendered(fmt, made, fmt.parse(made.text, tools=made.tools, prompt=made.prompt).message)
    except chatcodec.RenderError as error:
        assert error.code in make.REFUSED_TEXTS, error
        event("the template refuses to write this text")
        return
    sampled = once.sampled_spans[-1]
    if sampled is None:
        event("not a turn that this prompt can have")
        return
    start, end = sampled
    again = fmt.parse(once.text[start:end], tools=made.tools, prompt=once.text[:start])
    event("forged" if any(loss.code in FORGED for loss in once.losses) else "plain")
    assert any(loss.code in FORGED for loss in once.losses) or _rendered(fmt, made, again.message).text == once.text


# ---------------------------------------------------------------------------------------------------------------- 5. junk


@formats
@given(data=st.data())
def test_junk_raises_only_codec_errors(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    made = data.draw(make.junk(fmt) | make.spliced(fmt))
    for policy in POLICIES:
        finish_reason = data.draw(st.sampled_from((*FINISH_REASONS, "tool_calls")))
        given = {"tools": made.tools, "prompt": made.prompt, "policy": policy, "infer_types": data.draw(st.booleans())}
        for read in (
            lambda given=given, finish_reason=finish_reason: fmt.parse(made.text, finish_reason=finish_reason, **given),
            lambda given=given, finish_reason=finish_reason: _streamed(fmt, made.text, finish_reason, given),
        ):
            try:
                read()
            except chatcodec.ParseError as error:
                assert 0 <= error.position <= len(error.text)
                assert str(error)


@formats
@given(data=st.data())
def test_a_junk_prompt_raises_only_codec_errors(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    made = data.draw(make.junk(fmt) | make.spliced(fmt))
    text = made.prompt + made.text + data.draw(st.sampled_from(("", "\n", made.prompt)))
    if data.draw(st.booleans()):
        start = data.draw(st.integers(0, len(made.prompt)))
        text = text[start:] if data.draw(st.booleans()) else text[:start] + made.text + text[start:]
    for use in (lambda: fmt.parse_prompt(text), lambda: fmt.parse(made.text, prompt=text)):
        try:
            use()
        except chatcodec.ParseError as error:
            assert 0 <= error.position <= len(error.text)


@formats
@given(data=st.data())
def test_junk_messages_raise_only_render_errors(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    tools: Any = data.draw(make.tools())
    messages: Any = data.draw(make.conversations(tools, max_turns=1))
    given: Any = data.draw(make.options(fmt, without=()))
    damage = data.draw(st.sampled_from(("messages", "tools", "options", "all")))
    if damage in ("messages", "all"):
        messages = data.draw(make.damaged(messages))
    if damage in ("tools", "all"):
        tools = data.draw(make.damaged(tools))
    if damage in ("options", "all"):
        given |= data.draw(st.dictionaries(st.sampled_from((*fmt.options, "option", "enable_thinkin")), make.junk_values(), max_size=3))
    try:
        rendered = fmt.render(messages, tools=tools, **given)
    except chatcodec.RenderError as error:
        assert error.format == name and error.path and error.reason and "\n" not in str(error)
    else:
        assert isinstance(rendered.text, str)


@formats
def test_bottomless_values_raise_only_codec_errors(name: str) -> None:
    fmt = chatcodec.get_format(name)
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    text = "[" * 100_000 + "]" * 100_000
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "array"}}}}}

    def conversation(arguments: Any) -> list[Message]:
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        return [{"role": "user", "content": "go"}, {"role": "assistant", "content": "", "tool_calls": [call]}]

    for arguments in ({"x": deep}, f'{{"x": {text}}}'):
        with suppress(chatcodec.RenderError):
            fmt.render(conversation(arguments), tools=[tool])
    with suppress(chatcodec.RenderError):
        fmt.render(conversation({}), tools=[{"type": "function", "function": {"name": "f", "parameters": {"default": deep}}}])
    shallow = fmt.render(conversation({"x": ["here"]}), tools=[tool])
    sampled = shallow.sampled_spans[-1]
    assert sampled is not None
    hostile, prompt = shallow.text[slice(*sampled)].replace('["here"]', text), shallow.text[: sampled[0]]
    for infer_types in (False, True):
        assert fmt.parse(hostile, tools=[tool], prompt=prompt, infer_types=infer_types).finish_reason
        assert fmt.parse(hostile, prompt=prompt, infer_types=infer_types).finish_reason


# -------------------------------------------------------------------------------------------------------- 7. whole prompts


@formats
@given(data=st.data())
def test_options_that_were_read_are_the_callers_own(name: str, data: st.DataObject) -> None:
    """Whoever changes them changes no later reading."""
    fmt = chatcodec.get_format(name)
    text = make.rendered(fmt, [{"role": "user", "content": "hi"}], **data.draw(make.options(fmt, without=()))).text
    read = fmt.parse_prompt(text).options
    before = copy.deepcopy(read)
    for value in read.values():
        if isinstance(value, dict):
            value["spoilt"] = True
    assert fmt.parse_prompt(text).options == before


@formats
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_many_parts_are_read_back_in_linear_time(name: str, role: str) -> None:
    fmt = chatcodec.get_format(name)
    messages: list[Message] = [{"role": "user", "content": "hi"}] if role == "assistant" else []
    messages.append({"role": role, "content": [{"type": "text", "text": "x"}] * 60_000})
    with suppress(chatcodec.RenderError), at_most(20):
        fmt.parse_prompt(fmt.render(messages).text)


@formats
@given(data=st.data())
def test_a_text_that_no_template_writes_is_no_prompt(name: str, data: st.DataObject) -> None:
    """Nothing in a prompt is passed over or read as something else: what is read renders to the very text."""
    fmt = chatcodec.get_format(name)
    tools = data.draw(make.tools())
    rendered = make.rendered(fmt, data.draw(make.conversations(tools)), tools=tools)
    text = data.draw(make.spliced_text(fmt, rendered.text))
    try:
        read = fmt.parse_prompt(text)
    except chatcodec.ParseError as error:
        event("refused")
        assert 0 <= error.position <= len(text)
        return
    event("read")
    assert fmt.render(read.messages, tools=read.tools, **read.options).text == text


SOLAR_ARGUMENT = "<|tool_arg:start|>query<|tool_arg:value|>a<|tool_arg:end|>\n"
CALLING = (
    ("inkling", '{"query":"a"}', '{"query":"a",}'),
    ("inkling", '{"query":"a"}', '{"query":"b","query":"a"}'),
    ("inkling", '{"query":"a"}', '{"query": "a"}'),
    ("inkling", '{"query":"a"}', '{"query":NaN}'),
    ("inkling", '"name":"search"', '"name":"find"'),
    ("inkling", ',"args":{"query":"a"}', ""),
    ("qwen3_5", "<parameter=query>\na\n</parameter>\n", "<parameter=query>\na\n</parameter>\n" * 2),
    ("solar_open2", SOLAR_ARGUMENT, SOLAR_ARGUMENT * 2),
    ("harmony_xml", '<rfl:parameter name="query">\na\n</rfl:parameter>', '<rfl:parameter name="query">\na\n</rfl:parameter>\n' * 2),
)  # fmt: skip


@pytest.mark.parametrize(("name", "written", "forged"), CALLING)
def test_a_call_that_no_template_writes_is_refused(name: str, written: str, forged: str) -> None:
    """Not dropped, and not read as another call, whatever a completion with it would come to."""
    fmt = chatcodec.get_format(name)
    call = {"id": "c0", "type": "function", "function": {"name": "search", "arguments": {"query": "a"}}}
    text = fmt.render([{"role": "user", "content": "?"}, {"role": "assistant", "content": None, "tool_calls": [call]}]).text
    assert text.count(written) == 1
    with pytest.raises(chatcodec.ParseError):
        fmt.parse_prompt(text.replace(written, forged))


@formats
@given(data=st.data())
def test_parse_prompt_undoes_a_prompt(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    pieces = make.pieces_of(name, whole=data.draw(st.integers(0, 3)) == 0)
    tools = data.draw(make.tools(pieces))
    messages = data.draw(make.conversations(tools, pieces))
    given = data.draw(make.options(fmt, without=()))
    rendered = make.rendered(fmt, messages, tools=tools, **given)
    forged = [_plain(loss.path) for loss in rendered.losses if loss.code in FORGED]
    try:
        read = fmt.parse_prompt(rendered.text)
    except chatcodec.ParseError:
        assert forged, "a prompt whose texts forge no marker is a prompt"
        event("forged: no prompt")
        return
    event("forged: the same prompt" if forged else "plain")
    assert fmt.render(read.messages, tools=read.tools, **read.options).text == rendered.text
    if any(not path.startswith("messages[") for path in forged):
        return
    assert bool(read.options.get("add_generation_prompt")) == bool(given.get("add_generation_prompt"))
    assert forged or _unexplained_tools(tools, read.tools, rendered.losses) == []
    assert _unexplained_messages(messages, [message.model_dump() for message in read.messages], rendered.losses) == []


#: Keys of a declaration that say nothing where they hold nothing, so that nobody misses them.
IDLE = frozenset(("description", "parameters", "properties", "required", "items"))


def _said(tool: Any) -> Any:
    """A declaration without what says nothing, and with one of the two spellings of a type that may be null."""
    if isinstance(tool, dict):
        if tool.get("nullable") is True and tool.get("type") in ("string", "number", "integer", "boolean") and not tool.get("enum"):
            tool = {**{key: value for key, value in tool.items() if key != "nullable"}, "type": [tool["type"], "null"]}
        return {key: _said(value) for key, value in tool.items() if value or key not in IDLE}
    return [_said(value) for value in tool] if isinstance(tool, list) else tool


def _unexplained_tools(given: make.Tools, read: make.Tools | None, losses: Sequence[Loss]) -> list[str]:
    if len(given) != len(read or ()):
        return [f"{len(given)} tools were read back as {len(read or ())}"]
    pairs = [
        (f"tools[{index}]", *(json.dumps(_said(tool), sort_keys=True) for tool in pair))
        for index, pair in enumerate(zip(given, read or (), strict=True))
    ]
    return [f"{path}: {before} was read back as {after}" for path, before, after in pairs if before != after and not _within(losses, path)]


def _unexplained_messages(given: list[Message], read: list[Message], losses: Sequence[Loss]) -> list[str]:
    """The differences that no loss names, up to the first message that forges a marker."""
    gone = {loss.path for loss in losses if loss.code in GONE}
    forging = [any(loss.code in FORGED for loss in _within(losses, f"messages[{index}]")) for index in range(len(given))]
    last = forging.index(True) if True in forging else None
    numbered = list(enumerate(given))[: None if last is None else last + 1]
    kept = [(f"messages[{index}]", message) for index, message in numbered if f"messages[{index}]" not in gone]
    for (path, message), back in zip(kept, read, strict=False):
        if found := unexplained(message, back, losses, path):
            return found
    return [] if last is not None or len(kept) == len(read) else [f"{len(kept)} messages were read back as {len(read)}"]
