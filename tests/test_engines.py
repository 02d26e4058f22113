"""What both engines owe: their own parsers and serving code, with the plug-ins, against the codec.

Rules of this file: each engine is driven in a process of its own (`engines.py`); one that is not here is skipped.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import chatcodec
from conformance import all_cases, cuts, text_of
from engines import BOTH, PLAIN, TOOL, TURN, Engine, check_alone, check_both, finished, written
from strategies import completions
from strategies import cuts as random_cuts

FORMATS = chatcodec.list_formats()
formats = pytest.mark.parametrize("name", FORMATS)


@pytest.fixture(params=["vllm", "sglang"])
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.getfixturevalue(request.param)
    return found


def test_every_format_is_registered(engine: Engine) -> None:
    for registered in engine.ready["registered"]:
        assert {f"chatcodec_{name}" for name in FORMATS} == {name for name in registered if name.startswith("chatcodec_")}


@settings(max_examples=50, suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_both_parsers_tell_what_the_codec_reads(engine: Engine, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FORMATS))
    fmt = chatcodec.get_format(name)
    made = data.draw(completions(fmt))
    reply = fmt.parse(made.text, tools=made.tools, prompt=made.prompt)
    parts = data.draw(random_cuts(made.text))
    result = engine.run(
        format=name, tools=engine.tools(made.tools), parsers=BOTH, prompt=made.prompt, cuts=parts, finish="stop",
        request={"stream_reasoning": data.draw(st.booleans())} if engine.name == "sglang" else {},
    )  # fmt: skip
    if made.tools:
        check_both(result, engine.seen(reply, made.tools))
    else:  # nobody asked for calls
        check_alone(result, reply)


@formats
def test_odd_completions(engine: Engine, name: str) -> None:
    """The conformance cases: broken, cut and forged texts."""
    fmt = chatcodec.get_format(name)
    for case in all_cases("parse", "stream"):
        if case["format"] != name or len(text_of(case)) > 20_000:
            continue
        given = case["input"]
        tools, asked = given.get("tools"), [{"role": "user", "content": "hi"}]
        prompt = fmt.render(asked, tools=tools, add_generation_prompt=True, **given.get("kwargs", {})).text
        text = text_of(case)
        reply = engine.seen(fmt.parse(text, tools=tools, prompt=prompt), tools)
        for parts in (next(iter(cuts(case))), [text]):
            result = engine.run(format=name, tools=engine.tools(tools), parsers=BOTH, prompt=prompt, cuts=parts, finish="stop")
            (check_both if tools else check_alone)(result, reply)


@formats
@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "get_weather"}}, "none"])
def test_tool_choice(engine: Engine, name: str, choice: Any) -> None:
    prompt, text = written(name, TURN)
    result = engine.run(format=name, tools=[TOOL], tool_choice=choice, parsers=BOTH, prompt=prompt, cuts=list(text), finish="stop")
    for told in (result["streamed"], result["whole"]):
        if choice == "none":
            assert not told["calls"]
            assert "Oslo" in told["content"]
        else:
            assert finished(told["calls"]) == [("get_weather", {"city": "Oslo", "days": 2})]
            assert "Oslo" not in told["content"]
    named = engine.name == "vllm" and isinstance(choice, dict)  # of a call that had to be made vLLM says nothing
    assert result["finish"] == ("stop" if choice == "none" or named else "tool_calls")


@formats
@pytest.mark.parametrize("parsers", [BOTH, ["reasoning"]])
def test_a_message_that_is_continued(engine: Engine, name: str, parsers: list[str]) -> None:
    prompt, text = written(name, PLAIN)
    for begun, content in (("I lo", "One two three."), ("One ", "two three.")):
        place = text.index(begun) + len(begun)
        result = engine.run(
            format=name, tools=[TOOL], parsers=parsers, prompt=prompt + text[:place], cuts=list(text[place:]), finish="stop"
        )
        for told in (result["streamed"], result["whole"]):
            assert told == {"reasoning": "ok." if begun == "I lo" else "", "content": content, "calls": []}


@formats
@pytest.mark.parametrize("parsers", [BOTH, ["tools"], ["reasoning"]])
def test_no_output_at_all(engine: Engine, name: str, parsers: list[str]) -> None:
    prompt, _ = written(name, TURN)
    result = engine.run(format=name, tools=[TOOL], parsers=parsers, prompt=prompt, cuts=[], finish="stop")
    assert result["streamed"] == result["whole"] == {"reasoning": "", "content": "", "calls": []}
