"""Going on with a rollout: what was sent and sampled stays, and the rest is as if the whole had been rendered."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import chatcodec
import strategies as make
from chatcodec.tokens.encoding import encode
from chatcodec.tokens.extending import Extended, extend
from chatcodec.tokens.opened import continue_final_message
from chatcodec.tokens.stops import stop_strings
from chatcodec.tokens.tokenizer import adapt
from make_tokenizer import MAKERS

formats = pytest.mark.parametrize("name", chatcodec.list_formats())
TOKENIZERS = {kind: maker() for kind, maker in MAKERS.items()}

USER: dict[str, Any] = {"role": "user", "content": "hi"}
CALL = {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Oslo", "days": "2"}}}
OTHER_CALL = {"id": "b", "type": "function", "function": {"name": "search", "arguments": {"query": "tides"}}}
CALLING: dict[str, Any] = {"role": "assistant", "reasoning_content": "Look.", "content": None, "tool_calls": [CALL, OTHER_CALL]}
SAYING: dict[str, Any] = {"role": "assistant", "reasoning_content": "Think.", "content": "Yes."}
RESULTS = [{"role": "tool", "tool_call_id": "a", "content": "rain"}, {"role": "tool", "tool_call_id": "b", "content": "high"}]


def keeps_reasoning(fmt: chatcodec.Format) -> dict[str, Any]:
    """The options with which new messages leave a format's earlier text alone."""
    return {"think_render_option": "preserved"} if "think_render_option" in fmt.options else {}


def unchecked(fmt: chatcodec.Format) -> dict[str, Any]:
    return {name: True for name in make.REFUSING if name in fmt.options}


def drawn(data: st.DataObject, fmt: chatcodec.Format, *, forging: bool = True) -> tuple[list[Any], Any, dict[str, Any], chatcodec.Rendered]:
    """A conversation that ends with a turn of the model, and its rendering; `forging`: texts may hold pieces of markers."""
    pieces = make.pieces_of(fmt.name) if forging else ()
    tools = data.draw(make.tools(pieces)) or None
    messages = data.draw(make.conversations(tools or [], pieces, end="assistant"))
    chosen = data.draw(make.options(fmt)) | unchecked(fmt)
    rendered = make.rendered(fmt, messages, tools=tools, **chosen)
    span = rendered.sampled_spans[-1]
    assume(span is not None and sum(rendered.text[slice(*span)].count(stop) for stop in stop_strings(fmt)) == 1)  # a model stops there
    return messages, tools, chosen, rendered


@formats
@given(data=st.data())
def test_extending_is_rendering_the_whole(name: str, data: st.DataObject) -> None:
    """For canonical turns: the same text, or the refusal to write a text that is another."""
    fmt = chatcodec.get_format(name)
    messages, tools, chosen, rendered = drawn(data, fmt, forging=False)
    assume(not any("control_token" in loss.code for loss in rendered.losses))
    calls = messages[-1].get("tool_calls", ())
    new = [{"role": "tool", "tool_call_id": call["id"], "content": data.draw(make.texts())} for call in calls]
    if not new or data.draw(st.booleans()):
        new.append({"role": "user", "content": data.draw(make.texts())})
    span = rendered.sampled_spans[-1]
    assert span is not None
    previous = rendered.text[: span[1]]
    whole = fmt.render([*messages, *new], tools=tools, add_generation_prompt=True, **chosen)
    try:
        extended = extend(fmt, previous, new, tools=tools, **chosen)
    except chatcodec.CodecError as refused:
        assert "extended exactly" in str(refused)
        assert not whole.text.startswith(previous)
        return
    assert extended.text == whole.text
    assert extended.text == previous + extended.added.text
    assert extended.added.text.startswith(extended.closing) and not extended.closing.strip()
    assert extended.added.sampled_spans == extended.added.generation_spans == []


@formats
@given(data=st.data(), kind=st.sampled_from(sorted(MAKERS)))
def test_a_turn_that_is_cut_anywhere(name: str, data: st.DataObject, kind: str) -> None:
    """What was there stays, what closes it was not sampled, and new text comes behind, whatever was cut off."""
    fmt, tokenizer = chatcodec.get_format(name), TOKENIZERS[kind]
    _, tools, chosen, rendered = drawn(data, fmt)
    span = rendered.sampled_spans[-1]
    assert span is not None
    previous = rendered.text[: data.draw(st.integers(*span))]
    new = [{"role": "user", "content": data.draw(make.texts(make.pieces_of(name, whole=True)))}]
    try:
        extended = extend(fmt, previous, new, tools=tools, tokenizer=tokenizer, **chosen)
    except chatcodec.CodecError as refused:
        assert "extended exactly" in str(refused)
        return
    assert extended.text.startswith(previous) and extended.ids is None
    assert fmt._start(extended.text) == fmt._start(fmt.generation_prompt(fmt._options(chosen)))
    assert (previous + extended.closing).rstrip().endswith(stop_strings(fmt))
    assert not any(span.generated for span in extended.added.spans)
    assert extended.added.sampled_spans == extended.added.generation_spans == []
    assert extended.added_ids == encode(extended.added, tokenizer).ids


@formats
@given(data=st.data(), kind=st.sampled_from(sorted(MAKERS)))
def test_ids_go_on_as_ids(name: str, data: st.DataObject, kind: str) -> None:
    """Token by token the ids of the whole, forged control tokens in it or not."""
    fmt, tokenizer = chatcodec.get_format(name), TOKENIZERS[kind]
    chosen = keeps_reasoning(fmt)
    forged = data.draw(make.texts(make.pieces_of(name, whole=True)))
    before: list[Any] = [{"role": "user", "content": data.draw(make.texts())}, CALLING]
    new = [RESULTS[0], RESULTS[1] | {"content": forged}]
    rendered = fmt.render(before, **chosen)
    whole = encode(fmt.render([*before, *new], add_generation_prompt=True, **chosen), tokenizer)
    span = rendered.sampled_spans[-1]
    assert span is not None
    previous = whole.ids[: whole.within(0, span[1])[1]]
    extended = extend(fmt, previous, new, tokenizer=tokenizer, **chosen)
    assert extended.ids == whole.ids and extended.text == whole.rendered.text
    assert extended.added_ids == whole.ids[len(previous) :]
    for span_ in extended.added.spans:
        assert span_.message in (None, 0, 1)


def rollout(fmt: chatcodec.Format, turn: dict[str, Any], **chosen: Any) -> tuple[str, str]:
    """A prompt and what the model wrote, up to and with its stop string."""
    rendered = fmt.render([USER, turn], **chosen)
    span = rendered.sampled_spans[-1]
    assert span is not None
    return rendered.text[: span[0]], rendered.text[slice(*span)]


@formats
def test_a_turn_that_is_no_text_of_the_template(name: str) -> None:
    """What the template would write otherwise stays as the model wrote it."""
    fmt = chatcodec.get_format(name)
    chosen = keeps_reasoning(fmt)
    prompt, completion = rollout(fmt, CALLING, **chosen)
    canonical = extend(fmt, prompt + completion, RESULTS, **chosen)
    odd = "Look.\n\n\n  " if name == "qwen3_5" else "<|im:content|>Look." if name == "solar_open2" else "<|message|>Look."
    written = prompt + completion.replace("Look.", odd, 1).replace('"args":', '"args": ', 1)
    stop = next(stop for stop in stop_strings(fmt) if completion.endswith(stop))
    written = written.removesuffix(stop) + "\n\n" * (name == "qwen3_5") + stop
    extended = extend(fmt, written, RESULTS, **chosen)
    assert extended.text.startswith(written)
    assert extended.text.removeprefix(written) == canonical.text.removeprefix(prompt + completion)


@formats
def test_results_are_assigned_by_the_turn_where_it_is_given(name: str) -> None:
    fmt = chatcodec.get_format(name)
    prompt, completion = rollout(fmt, CALLING)
    new = RESULTS[::-1]
    extended = extend(fmt, prompt + completion, new, turn=CALLING)
    assert extended.text == fmt.render([USER, CALLING, *new], add_generation_prompt=True).text
    with pytest.raises(chatcodec.CodecError, match="turn has other calls than the text, which has get_weather, search"):
        extend(fmt, prompt + completion, new, turn=SAYING)


@formats
def test_truncated_is_what_the_caller_says(name: str) -> None:
    fmt = chatcodec.get_format(name)
    chosen = keeps_reasoning(fmt)
    prompt, completion = rollout(fmt, SAYING, **chosen)
    stop = next(stop for stop in stop_strings(fmt) if completion.endswith(stop))
    new = [USER]
    whole = fmt.render([USER, SAYING, USER], add_generation_prompt=True, **chosen).text
    bare = completion.removesuffix(stop)
    for truncated in (None, True):
        assert extend(fmt, prompt + bare, new, truncated=truncated, **chosen).text == whole
    if name != "inkling":  # there the stop is more than the end of the last block
        assert extend(fmt, prompt + bare, new, truncated=False, **chosen).closing.startswith(stop)
    half = prompt + completion[: completion.index("hink.")]
    with pytest.raises(chatcodec.CodecError, match="not finished"):
        extend(fmt, half, new, truncated=False, **chosen)
    closed = extend(fmt, half, new, **chosen)
    read = fmt.parse_prompt(closed.text)
    assert read.messages[-2].reasoning_content == "T"
    assert read.messages[-1].content == "hi"


def test_what_a_new_turn_changes_is_refused() -> None:
    """Solar leaves out the reasoning of turns before the last user turn."""
    fmt = chatcodec.get_format("solar_open2")
    prompt, completion = rollout(fmt, SAYING)
    with pytest.raises(chatcodec.CodecError, match=r"extended exactly.*'Think") as refused:
        extend(fmt, prompt + completion, [USER])
    assert "render the whole" in str(refused.value)
    odd = prompt + completion.replace("Think.", "Think.<|im:content|><|tool_arg:end|>")
    with pytest.raises(chatcodec.CodecError, match="extended exactly"):
        extend(fmt, odd.replace("Yes", "Yes<|think:end|>"), [USER])
    prompt, completion = rollout(fmt, {"role": "assistant", "content": "Yes."}, reasoning_effort="none")
    assert (
        extend(fmt, prompt + completion, [USER], reasoning_effort="none").text
        == fmt.render([USER, {"role": "assistant", "content": "Yes."}, USER], add_generation_prompt=True, reasoning_effort="none").text
    )


def test_media_are_numbered_on() -> None:
    fmt = chatcodec.get_format("qwen3_5")
    seen: dict[str, Any] = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}
    rendered = fmt.render([seen, SAYING], add_vision_id=True)
    whole = fmt.render([seen, SAYING, seen], add_vision_id=True, add_generation_prompt=True)
    assert extend(fmt, rendered.text, [seen], add_vision_id=True).text == whole.text
    odd = rendered.text.replace("Yes.", "Yes.</tool_call>\n\n\n")  # not what the template writes: nobody counts its images
    with pytest.raises(chatcodec.CodecError, match="how many images"):
        extend(fmt, odd, [seen], add_vision_id=True)


@formats
def test_losses_are_those_of_the_new_messages(name: str) -> None:
    fmt = chatcodec.get_format(name)
    prompt, completion = rollout(fmt, CALLING)
    token = fmt.special_tokens[0]
    extended = extend(fmt, prompt + completion, [RESULTS[0], RESULTS[1] | {"content": token}])
    assert ("control_token_in_content", "messages[1].content") in [(loss.code, loss.path) for loss in extended.losses]
    assert str(extended) == extended.text and isinstance(extended, Extended)


@formats
def test_a_bad_new_message_is_named_by_its_own_number(name: str) -> None:
    fmt = chatcodec.get_format(name)
    prompt, completion = rollout(fmt, CALLING)
    with pytest.raises(chatcodec.RenderError) as refused:
        extend(fmt, prompt + completion, [*RESULTS, {"role": "tool", "content": 3}])
    assert refused.value.path.startswith("messages[2]")


@formats
@pytest.mark.parametrize(
    ("previous", "given", "words"),
    [
        (3, {}, "text or token ids, not int"),
        (b"x", {}, "text or token ids, not bytes"),
        ([1, 2], {}, "tokenizer="),
        ([-1], {"tokenizer": "tiktoken"}, "integers from 0 up"),
        (["a"], {"tokenizer": "tiktoken"}, "integers from 0 up"),
        ([10**9], {"tokenizer": "tiktoken"}, "cannot decode"),
        ("", {}, "does not end with a turn"),
        ("no text of any format", {}, "does not end with a turn"),
    ],
)
def test_what_cannot_be_extended(name: str, previous: Any, given: dict[str, Any], words: str) -> None:
    if "tokenizer" in given:
        given = {"tokenizer": TOKENIZERS[given["tokenizer"]]}
    with pytest.raises(chatcodec.CodecError, match=words):
        extend(chatcodec.get_format(name), previous, [USER], **given)


@formats
def test_a_prompt_that_ends_with_another_message_is_refused(name: str) -> None:
    fmt = chatcodec.get_format(name)
    with pytest.raises(chatcodec.CodecError, match="does not end with a turn of the model"):
        extend(fmt, fmt.render([USER]).text, [USER])


# ------------------------------------------------------------------------------------------------------- open turns


@formats
@given(data=st.data())
def test_an_open_turn_is_a_beginning_of_the_whole(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    content = data.draw(make.texts(min_size=1).filter(str.strip))
    messages: list[Any] = [USER, SAYING | {"content": content}]
    whole = fmt.render(messages)
    opened = continue_final_message(fmt, messages)
    assert whole.text.startswith(opened.rendered.text) and opened.rendered.text == opened.prompt + opened.turn
    assert opened.rendered.text.endswith(content.strip() if name == "qwen3_5" else content)
    assert opened.prompt == fmt.render([USER], add_generation_prompt=True).text
    assert not any(span.generated for span in opened.rendered.spans)
    span = whole.sampled_spans[-1]
    assert span is not None
    rest = whole.text[len(opened.rendered.text) : span[1]]
    assert fmt.parse(opened.turn + rest, prompt=opened.prompt) == fmt.parse(whole.text[slice(*span)], prompt=opened.prompt)


@formats
def test_an_open_turn_behind_a_rollout(name: str) -> None:
    fmt, tokenizer = chatcodec.get_format(name), TOKENIZERS["tokenizers"]
    chosen = keeps_reasoning(fmt)
    prompt, completion = rollout(fmt, SAYING, **chosen)
    extended = extend(fmt, prompt + completion, [USER, SAYING], continue_final_message=True, tokenizer=tokenizer, **chosen)
    assert extended.text == continue_final_message(fmt, [USER, SAYING, USER, SAYING], **chosen).rendered.text
    assert extended.text.endswith("Yes.")
    assert extended.added_ids is not None and adapt(tokenizer).decode(extended.added_ids) == extended.added.text


@formats
def test_what_cannot_be_left_open(name: str) -> None:
    fmt = chatcodec.get_format(name)
    with pytest.raises(chatcodec.CodecError, match="only a turn of the assistant"):
        continue_final_message(fmt, [USER])
    with pytest.raises(chatcodec.CodecError, match="holds no text"):
        continue_final_message(fmt, [USER, {"role": "assistant", "content": ""}])
    with pytest.raises(chatcodec.CodecError, match="generation prompt"):
        continue_final_message(fmt, [USER, SAYING], add_generation_prompt=True)
