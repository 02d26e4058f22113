"""What the plug-ins for serving engines share, without any engine."""

import importlib
import importlib.util
import json
from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import chatcodec
from chatcodec.integrations.opening import generation_prompt, marks, prompt_text, reasoning_closed
from chatcodec.integrations.serving import Answer, BareAnswer, Delta, read_whole
from strategies import canonical, completions, cuts

FORMATS = chatcodec.list_formats()


def is_json(text: str) -> bool:
    """Whether a client could run a call with these arguments."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@given(data=st.data())
def test_deltas_tell_what_the_codec_reads(data: st.DataObject) -> None:
    fmt = chatcodec.get_format(data.draw(st.sampled_from(FORMATS)))
    made = data.draw(completions(fmt))
    reply = fmt.parse(made.text, tools=made.tools, prompt=made.prompt)
    answer = Answer(fmt, tools=made.tools, prompt=made.prompt)
    told, finished = Delta(), set()
    arguments: dict[int, str] = {}
    names: dict[int, str] = {}
    parts = data.draw(cuts(made.text))
    for number in range(len(parts) + 1):
        delta = answer.feed(parts[number]) if number < len(parts) else answer.close()
        told += delta
        for call in delta.calls:
            assert call.index not in finished
            if call.name is not None:
                names[call.index] = call.name
            arguments[call.index] = arguments.get(call.index, "") + call.arguments
            assert call.finished == is_json(arguments[call.index])
            if call.finished:
                finished.add(call.index)
    content = reply.message.content
    assert told.reasoning == answer.reasoning == (reply.message.reasoning_content or "")
    assert told.content == (content if isinstance(content, str) else "".join(part["text"] for part in content or ()))
    called = [(names[index], json.loads(arguments[index])) for index in sorted(finished)]
    assert called == [(call.name, json.loads(json.dumps(call.arguments))) for call in reply.message.tool_calls]
    assert sorted(names) == list(range(len(names)))
    whole = read_whole(Answer(fmt, tools=made.tools, prompt=made.prompt), made.text)
    assert whole[:2] == (told.reasoning, told.content)
    assert [(call.name, json.loads(call.arguments)) for call in whole.calls] == called


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("arguments", [{"city": "Oslo", "where": {"a": {}}}, {"city": "}"}, {}])
def test_arguments_are_whole_only_when_the_call_is_finished(name: str, arguments: dict[str, object]) -> None:
    """Wherever a model is cut off, what was told of its last call cannot be run."""
    fmt = chatcodec.get_format(name)
    called = {"id": "call_1", "function": {"name": "look", "arguments": arguments}}
    rendered = fmt.render([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [called]}])
    span = rendered.sampled_spans[-1]
    assert span is not None
    answer = Answer(fmt, tools=[{"function": {"name": "look"}}], prompt=rendered.text[: span[0]])
    told, finished = "", False
    for character in rendered.text[slice(*span)]:
        for call in answer.feed(character).calls:
            told, finished = told + call.arguments, call.finished
        assert is_json(told) == finished
    for call in answer.close().calls:
        told, finished = told + call.arguments, call.finished
    assert finished and json.loads(told) == arguments


@given(data=st.data())
def test_calls_that_nobody_asked_for_stay_text(data: st.DataObject) -> None:
    fmt = chatcodec.get_format(data.draw(st.sampled_from(FORMATS)))
    made = data.draw(completions(fmt))
    reply = fmt.parse(made.text, prompt=made.prompt)
    answer = Answer(fmt, prompt=made.prompt, calls=False, apart=data.draw(st.booleans()))
    told = Delta()
    for part in data.draw(cuts(made.text)):
        told += answer.feed(part)
    told += answer.close()
    assert not told.calls
    for segment in reply.segments:
        if segment.kind == "call":
            assert made.text[slice(*segment.span)].strip() in told.content
        else:
            assert segment.text in told.reasoning + told.content


@given(data=st.data())
def test_a_turn_can_be_continued_from_anywhere(data: st.DataObject) -> None:
    """What the prompt already says is not told again, and nothing else is left out."""
    fmt = chatcodec.get_format(data.draw(st.sampled_from(FORMATS)))
    made = data.draw(canonical(fmt))
    assume(not any(loss.code.startswith("control_token") for loss in made.losses))  # a forged end of the turn is one
    place = data.draw(st.integers(0, len(made.text)))
    first = Answer(fmt, tools=made.tools, prompt=made.prompt)
    second = Answer(fmt, tools=made.tools, prompt=made.prompt + made.text[:place])
    before, after = first.feed(made.text[:place]), second.feed(made.text[place:]) + second.close()
    whole = before + first.feed(made.text[place:]) + first.close()
    for one, two, all_of_it in (
        (before.reasoning, after.reasoning, whole.reasoning),
        (before.content, after.content, whole.content),
    ):
        assert all_of_it.startswith(one)
        assert all_of_it.endswith(two)
        assert len(one) + len(two) <= len(all_of_it)
    if place == 0:
        assert after == whole


@given(data=st.data())
def test_content_without_frames(data: st.DataObject) -> None:
    fmt = chatcodec.get_format(data.draw(st.sampled_from(FORMATS)))
    found, rendered = (
        marks(fmt),
        fmt.render([{"role": "user", "content": "hi"}, {"role": "assistant", "reasoning_content": "I look.", "content": "One."}]),
    )
    span = rendered.sampled_spans[-1]
    assert span is not None
    prompt, text = rendered.text[: span[0]], rendered.text[slice(*span)]
    body = json.dumps(
        data.draw(st.dictionaries(st.sampled_from(("a", *found.stops, found.end)), st.integers() | st.sampled_from(fmt.special_tokens)))
    )
    said = text[: text.index(found.end) + len(found.end)] + body + data.draw(st.sampled_from(("", *found.stops)))
    answer = BareAnswer(fmt, prompt=prompt)
    told = Delta()
    for part in data.draw(cuts(said)):
        told += answer.feed(part)
    assert told + answer.close() == Delta("I look.", body)


@pytest.mark.parametrize("name", FORMATS)
def test_marks(name: str) -> None:
    fmt = chatcodec.get_format(name)
    start, end, stops = marks(fmt)
    prompt = generation_prompt(fmt, {"no_such_option": 1})
    assert start and end in fmt.special_tokens and set(stops) <= set(fmt.special_tokens)
    assert not reasoning_closed(fmt, prompt)
    assert reasoning_closed(fmt, f"{prompt}{start}I look.{end}")


@pytest.mark.parametrize("name", FORMATS)
def test_options_of_a_template_that_the_format_does_not_know(name: str) -> None:
    """An engine's templates take what they like; a completion is read all the same."""
    fmt = chatcodec.get_format(name)
    options = {"reasoning_effort": ["?"], "enable_thinking": "maybe", "other": 1}
    assert Answer(fmt, options=options).feed("") == Answer(fmt).feed("") == Delta()


@pytest.mark.parametrize("name", FORMATS)
def test_the_end_of_a_prompt_is_enough(name: str) -> None:
    fmt = chatcodec.get_format(name)
    prompt = "x" * 5000 + generation_prompt(fmt, None)
    asked = []

    def decode(tokens: Sequence[int]) -> str:
        asked.append(len(tokens))
        return "".join(map(chr, tokens))

    assert prompt.endswith(prompt_text(fmt, [*map(ord, prompt)], decode))
    assert prompt_text(fmt, [*map(ord, prompt + "y" * 1000)], decode) == prompt + "y" * 1000
    assert asked == [256, 256, len(prompt) + 1000]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_without_its_engine_a_plug_in_says_so(engine: str) -> None:
    if importlib.util.find_spec(engine):
        pytest.skip(f"{engine} is installed")
    with pytest.raises(chatcodec.CodecError, match=f"pip install {engine}"):
        importlib.import_module(f"chatcodec.integrations.{engine}")
