"""SGLang's own parsers and serving code, with the plug-in, against the codec.

Rules of this file: SGLang is driven in a process of its own (`engines.py`); without SGLang all of this is skipped.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chatcodec
from chatcodec.integrations.opening import marks
from engines import BOTH, PLAIN, TOOL, TURN, Engine, calls_of, check_alone, finished, written
from strategies import canonical
from strategies import cuts as random_cuts

FORMATS = chatcodec.list_formats()


@settings(max_examples=40)
@given(data=st.data())
def test_one_parser_loses_nothing(sglang: Engine, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FORMATS))
    fmt = chatcodec.get_format(name)
    made = data.draw(canonical(fmt).filter(lambda made: made.tools))
    parsers, request = data.draw(st.sampled_from(((["tools"], {}), (["reasoning"], {}), (BOTH, {"separate_reasoning": False}))))
    result = sglang.run(
        format=name,
        tools=sglang.tools(made.tools),
        parsers=parsers,
        prompt=made.prompt,
        cuts=data.draw(random_cuts(made.text)),
        finish="stop",
        request=request,
    )
    check_alone(result, fmt.parse(made.text, tools=made.tools, prompt=made.prompt))


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
