"""vLLM's own parser manager and stream processor, with the plug-in, against the codec.

Rules of this file: vLLM is driven in a process of its own (`engines.py`); without vLLM all of this is skipped.
"""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chatcodec
from chatcodec.integrations.opening import marks
from engines import BOTH, PLAIN, TOOL, TURN, Engine, calls_of, check_alone, content_of, finished, written
from strategies import canonical
from strategies import cuts as random_cuts

FORMATS = chatcodec.list_formats()


@settings(max_examples=60)
@given(data=st.data())
def test_one_parser_loses_nothing(vllm: Engine, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FORMATS))
    fmt = chatcodec.get_format(name)
    made = data.draw(canonical(fmt))
    alone, choice = data.draw(st.sampled_from((("tools", "auto"), ("reasoning", "auto"), ("reasoning", "none"))))
    options = {key: value for key, value in made.options.items() if key != "now"}
    result = vllm.run(
        format=name,
        tools=made.tools,
        tool_choice=choice,
        parsers=[alone],
        prompt=made.prompt,
        cuts=data.draw(random_cuts(made.text)),
        finish="stop",
        request={"chat_template_kwargs": options},
    )
    check_alone(result, fmt.parse(made.text, tools=made.tools, prompt=made.prompt))


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_that_is_cut_off_is_not_finished(vllm: Engine, name: str) -> None:
    prompt, text = written(name, TURN)
    whole = chatcodec.get_format(name).parse(text, tools=[TOOL], prompt=prompt)
    (segment,) = (segment for segment in whole.segments if segment.kind == "call")
    for end in range(segment.span[0], segment.span[1]):
        result = vllm.run(format=name, tools=[TOOL], parsers=BOTH, prompt=prompt, cuts=list(text[:end]), finish="length")
        reply = chatcodec.get_format(name).parse(text[:end], tools=[TOOL], prompt=prompt)
        assert finished(result["streamed"]["calls"]) == finished(result["whole"]["calls"]) == calls_of(reply)
        assert result["finish"] == "length"


@pytest.mark.parametrize("name", FORMATS)
def test_markers_and_the_stop_token_reach_the_parser(vllm: Engine, name: str) -> None:
    prompt, text = written(name, TURN)
    for parsers in (BOTH, ["tools"], ["reasoning"]):
        job = {"format": name, "tools": [TOOL], "parsers": parsers, "prompt": prompt, "cuts": [text], "finish": "stop"}
        assert vllm.run(**job)["request"] == {"skip_special_tokens": False, "include_stop_str_in_output": True}
        asked = vllm.run(**job, request={"stop": ["END"]})["request"]
        assert asked == {"skip_special_tokens": False, "include_stop_str_in_output": False}


@pytest.mark.parametrize("name", FORMATS)
def test_text_whose_markers_are_gone_stays(vllm: Engine, name: str) -> None:
    """vLLM adjusts no request that wants neither calls nor reasoning."""
    prompt, _ = written(name, TURN)
    job = {"format": name, "parsers": ["tools"], "prompt": prompt, "cuts": ["Hel", "lo! <a", ">"], "finish": "stop"}
    result = vllm.run(**job)
    assert result["streamed"]["content"] == result["whole"]["content"] == "Hello! <a>"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("parsers", [BOTH, ["tools"]])
def test_content_that_a_grammar_holds_to_a_schema(vllm: Engine, name: str, parsers: list[str]) -> None:
    """It comes right behind the reasoning, without the format's frames."""
    prompt, text = written(name, PLAIN)
    end = vllm.run(drive="vllm_ids", format=name, prompt=prompt, text=text)["marks"][1]
    stop = marks(chatcodec.get_format(name)).stops[-1]
    said = text[: text.index(end) + len(end)] + '{"a": "<b>"}' + stop
    result = vllm.run(
        format=name, tools=[TOOL], parsers=parsers, prompt=prompt, cuts=list(said), finish="stop",
        request={"response_format": {"type": "json_object"}},
    )  # fmt: skip
    for told in (result["streamed"], result["whole"]):
        apart = ("I look.", '{"a": "<b>"}') if parsers == BOTH else ("", 'I look.\n\n{"a": "<b>"}')
        assert (told["reasoning"], told["content"].replace("\n\n\n", "\n\n")) == apart


@pytest.mark.parametrize("name", FORMATS)
def test_token_ids_tell_where_reasoning_ends(vllm: Engine, name: str) -> None:
    prompt, text = written(name, PLAIN)
    said = vllm.run(drive="vllm_ids", format=name, prompt=prompt, text=text)
    start, end = said["marks"]
    assert start in prompt + text[: text.index("I look.")]
    assert said["prompt"] is False
    assert said["text"].endswith(end)
    assert text.index("I look.") < len(said["text"]) <= text.index("One two")
    assert said["content"].find("I look.") < 0 <= said["content"].find("One two")
    assert vllm.run(drive="vllm_ids", format=name, prompt=prompt + said["text"], text="One.")["prompt"] is True


@pytest.mark.parametrize("name", FORMATS)
def test_reasoning_is_counted(vllm: Engine, name: str) -> None:
    prompt, text = written(name, TURN)
    for parsers in (BOTH, ["reasoning"]):
        result = vllm.run(format=name, tools=[TOOL], parsers=parsers, prompt=prompt, cuts=list(text), finish="stop")
        assert result["reasoning_tokens"] == [len("I look.")] * 2


def test_two_parsers_of_two_formats_are_refused(vllm: Engine) -> None:
    result = vllm.run(
        format=FORMATS[0], reasoning_parser=f"chatcodec_{FORMATS[1]}", tools=[TOOL], parsers=BOTH, prompt="", cuts=["a"], finish="stop"
    )
    assert "give both of one format" in result["error"]


def test_types_are_those_of_the_request(vllm: Engine) -> None:
    for name in FORMATS:
        prompt, text = written(name, TURN)
        untyped = json.loads(json.dumps(TOOL))
        untyped["function"]["parameters"]["properties"]["days"]["type"] = "string"
        for tool in (TOOL, untyped):
            result = vllm.run(format=name, tools=[tool], parsers=BOTH, prompt=prompt, cuts=list(text), finish="stop")
            reply = chatcodec.get_format(name).parse(text, tools=[tool], prompt=prompt)
            assert finished(result["streamed"]["calls"]) == calls_of(reply)
            assert result["streamed"]["content"] == content_of(reply)
