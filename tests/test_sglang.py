"""SGLang's own parsers and serving code, with the plug-in, against the codec.

Rules of this file: SGLang is driven in a process of its own (`engines.py`); without SGLang all of this is skipped.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chatcodec
import engines
from chatcodec.integrations.opening import marks
from conformance import all_cases, cuts, text_of
from engines import BOTH, PLAIN, TOOL, TURN, Engine, calls_of, check_alone, check_both, finished, written
from strategies import canonical, completions
from strategies import cuts as random_cuts

FORMATS = chatcodec.list_formats()
pytestmark = pytest.mark.skipif(engines.missing("sglang") is not None, reason=str(engines.missing("sglang")))


@pytest.fixture(scope="module")
def sglang() -> Iterator[Engine]:
    engine = Engine("sglang")
    yield engine
    engine.close()


def known(reply: chatcodec.Reply, tools: Any) -> chatcodec.Reply:
    """A reply without the calls of unknown tools, which SGLang leaves out."""
    names = {tool.get("function", tool)["name"] for tool in tools or ()}
    reply.message.tool_calls = [call for call in reply.message.tool_calls if call.name in names]
    return reply


def wrapped(tools: Any) -> list[dict[str, Any]] | None:
    """Tools in the one shape that SGLang takes."""
    return [tool if "function" in tool else {"type": "function", "function": tool} for tool in tools] if tools else None


def test_every_format_is_registered(sglang: Engine) -> None:
    for registered in sglang.ready["registered"]:
        assert {f"chatcodec_{name}" for name in FORMATS} == {name for name in registered if name.startswith("chatcodec_")}


@settings(max_examples=40)
@given(data=st.data())
def test_both_parsers_tell_what_the_codec_reads(sglang: Engine, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FORMATS))
    fmt = chatcodec.get_format(name)
    made = data.draw(completions(fmt))
    reply = fmt.parse(made.text, tools=made.tools, prompt=made.prompt)
    parts = data.draw(random_cuts(made.text))
    result = sglang.run(
        format=name, tools=wrapped(made.tools), parsers=BOTH, prompt=made.prompt, cuts=parts, finish="stop",
        request={"stream_reasoning": data.draw(st.booleans())},
    )  # fmt: skip
    if made.tools:
        check_both(result, known(reply, made.tools))
    else:  # nobody asked for calls
        check_alone(result, reply)


@settings(max_examples=40)
@given(data=st.data())
def test_one_parser_loses_nothing(sglang: Engine, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FORMATS))
    fmt = chatcodec.get_format(name)
    made = data.draw(canonical(fmt).filter(lambda made: made.tools))
    parsers, request = data.draw(st.sampled_from(((["tools"], {}), (["reasoning"], {}), (BOTH, {"separate_reasoning": False}))))
    result = sglang.run(
        format=name,
        tools=wrapped(made.tools),
        parsers=parsers,
        prompt=made.prompt,
        cuts=data.draw(random_cuts(made.text)),
        finish="stop",
        request=request,
    )
    check_alone(result, fmt.parse(made.text, tools=made.tools, prompt=made.prompt))


@pytest.mark.parametrize("name", FORMATS)
def test_odd_completions(sglang: Engine, name: str) -> None:
    """The conformance cases: broken, cut and forged texts."""
    fmt = chatcodec.get_format(name)
    for case in all_cases("parse", "stream"):
        if case["format"] != name or len(text_of(case)) > 20_000:
            continue
        given = case["input"]
        tools, asked = given.get("tools"), [{"role": "user", "content": "hi"}]
        prompt = fmt.render(asked, tools=tools, add_generation_prompt=True, **given.get("kwargs", {})).text
        text = text_of(case)
        reply = known(fmt.parse(text, tools=tools, prompt=prompt), tools)
        for parts in (next(iter(cuts(case))), [text]):
            result = sglang.run(format=name, tools=wrapped(tools), parsers=BOTH, prompt=prompt, cuts=parts, finish="stop")
            (check_both if tools else check_alone)(result, reply)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "get_weather"}}, "none"])
def test_tool_choice(sglang: Engine, name: str, choice: Any) -> None:
    prompt, text = written(name, TURN)
    result = sglang.run(format=name, tools=[TOOL], tool_choice=choice, parsers=BOTH, prompt=prompt, cuts=list(text), finish="stop")
    for told in (result["streamed"], result["whole"]):
        if choice == "none":
            assert not told["calls"]
            assert "Oslo" in told["content"]
        else:
            assert finished(told["calls"]) == [("get_weather", {"city": "Oslo", "days": 2})]
            assert "Oslo" not in told["content"]
    assert result["finish"] == ("stop" if choice == "none" else "tool_calls")


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_that_is_cut_off_is_not_finished(sglang: Engine, name: str) -> None:
    """Not even where the engine says that the model stopped by itself."""
    prompt, text = written(name, TURN)
    whole = chatcodec.get_format(name).parse(text, tools=[TOOL], prompt=prompt)
    (segment,) = (segment for segment in whole.segments if segment.kind == "call")
    for end in range(segment.span[0], segment.span[1]):
        result = sglang.run(format=name, tools=[TOOL], parsers=BOTH, prompt=prompt, cuts=list(text[:end]), finish="stop")
        reply = chatcodec.get_format(name).parse(text[:end], tools=[TOOL], prompt=prompt)
        assert finished(result["streamed"]["calls"]) == finished(result["whole"]["calls"]) == calls_of(reply)
        assert result["finish"] == ("tool_calls" if reply.message.tool_calls else "stop")


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_of_an_unknown_tool_is_left_out(sglang: Engine, name: str) -> None:
    prompt, text = written(name, TURN)
    other = {"type": "function", "function": {"name": "get_news", "parameters": {"type": "object", "properties": {}}}}
    for parsers in (BOTH, ["tools"]):
        result = sglang.run(format=name, tools=[other], parsers=parsers, prompt=prompt, cuts=list(text), finish="stop")
        assert not result["streamed"]["calls"]
        assert not result["whole"]["calls"]
        assert result["finish"] == "stop"


@pytest.mark.parametrize("name", FORMATS)
def test_markers_and_the_stop_token_reach_the_parser(sglang: Engine, name: str) -> None:
    prompt, text = written(name, TURN)
    for parsers in (BOTH, ["tools"], ["reasoning"]):
        result = sglang.run(format=name, tools=[TOOL], parsers=parsers, prompt=prompt, cuts=[text], finish="stop")
        assert result["request"] == {"skip_special_tokens": False}
        if "tools" in parsers:
            assert tuple(result["kept"]) == marks(chatcodec.get_format(name)).stops


@pytest.mark.parametrize("name", FORMATS)
def test_a_message_that_is_continued(sglang: Engine, name: str) -> None:
    prompt, text = written(name, PLAIN)
    for begun, content in (("I lo", "One two three."), ("One ", "two three.")):
        place = text.index(begun) + len(begun)
        for parsers in (BOTH, ["reasoning"]):
            result = sglang.run(
                format=name, tools=[TOOL], parsers=parsers, prompt=prompt + text[:place], cuts=list(text[place:]), finish="stop"
            )
            for told in (result["streamed"], result["whole"]):
                assert told == {"reasoning": "ok." if begun == "I lo" else "", "content": content, "calls": []}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("start", ["after_reasoning", "from_start"])
def test_content_that_a_grammar_holds_to_a_schema(sglang: Engine, name: str, start: str) -> None:
    """It comes right behind the reasoning, or at once, without the format's frames."""
    prompt, text = written(name, PLAIN)
    found = marks(chatcodec.get_format(name))
    said = '{"a": "<b>"}' + found.stops[-1]
    if start == "after_reasoning":
        said = text[: text.index(found.end) + len(found.end)] + said
    result = sglang.run(format=name, tools=[TOOL], parsers=BOTH, prompt=prompt, cuts=list(said), finish="stop", grammar_start=start)
    for told in (result["streamed"], result["whole"]):
        assert (told["reasoning"], told["content"]) == ("I look." if start == "after_reasoning" else "", '{"a": "<b>"}')


@pytest.mark.parametrize("name", FORMATS)
def test_reasoning_becomes_content_where_there_must_be_some(sglang: Engine, name: str) -> None:
    prompt, text = written(name, PLAIN)
    end = text.index("I look.") + len("I look.")
    result = sglang.run(
        format=name, tools=[TOOL], parsers=BOTH, prompt=prompt, cuts=[text[:end]], finish="length",
        request={"chat_template_kwargs": {"force_nonempty_content": True}},
    )  # fmt: skip
    assert result["streamed"]["content"] == result["whole"]["content"] == "I look."


@pytest.mark.parametrize("name", FORMATS)
def test_no_output_at_all(sglang: Engine, name: str) -> None:
    prompt, _ = written(name, TURN)
    for parsers in (BOTH, ["tools"], ["reasoning"]):
        result = sglang.run(format=name, tools=[TOOL], parsers=parsers, prompt=prompt, cuts=[], finish="stop")
        assert result["streamed"] == result["whole"] == {"reasoning": "", "content": "", "calls": []}
