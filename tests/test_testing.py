"""`chatcodec.testing`: the strategies hold to what a format can carry, and the assertions fail where they should."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

import chatcodec
from chatcodec import testing
from chatcodec.checks.comparing import FORGED
from chatcodec.checks.probes import probes
from chatcodec.errors import CodecError
from chatcodec.losses import losses_of
from chatcodec.testing import assert_round_trip, assert_same_text, completions, conversations, cuts, fitting, options, schemas, tools

CODECS = Path(__file__).parent.parent / "codecs"

formats = pytest.mark.parametrize("name", chatcodec.list_formats())


# -------------------------------------------------------------------------------------------------------------- strategies


@formats
@settings(max_examples=40)
@given(data=st.data())
def test_conversations_can_be_written(name: str, data: st.DataObject) -> None:
    drawn = data.draw(conversations(name))
    assert isinstance(drawn, chatcodec.Conversation)
    assert chatcodec.get_format(name).render(drawn.messages, tools=drawn.tools, **drawn.options).text
    assert_round_trip(name, drawn)


@formats
@settings(max_examples=30)
@given(data=st.data())
def test_exact_conversations_come_back_as_they_are(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    drawn = data.draw(conversations(fmt, exact=True))
    text = fmt.render(drawn.messages, tools=drawn.tools, **drawn.options).text
    read = fmt.parse_prompt(text)
    assert [message.model_dump() for message in read.messages] == [message.model_dump() for message in drawn.messages]
    assert json.dumps(read.tools) == json.dumps(drawn.tools)
    assert_round_trip(fmt, drawn, exact=True)


def _features(drawn: chatcodec.Conversation) -> set[str]:
    messages = drawn.messages
    has = {
        "tools": bool(drawn.tools),
        "calls": any(message.tool_calls for message in messages),
        "results": any(message.role == "tool" for message in messages),
        "reasoning": any(message.reasoning_content for message in messages),
        "options": bool(drawn.options),
        "media": any(isinstance(message.content, list) and message.content[-1]["type"] != "text" for message in messages),
        "turns": [message.role for message in messages].count("user") > 1,
    }
    return {feature for feature, holds in has.items() if holds}


def _seen(drawing: SearchStrategy[chatcodec.Conversation]) -> set[str]:
    """What conversations of a strategy have, the same on every run."""
    seen: set[str] = set()

    @settings(max_examples=140, phases=[Phase.generate], derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(drawing)
    def look(drawn: chatcodec.Conversation) -> None:
        seen.update(_features(drawn))

    look()
    return seen


@formats
def test_conversations_are_not_dull(name: str) -> None:
    wanted = {"tools", "calls", "results", "reasoning", "turns", "options"} | ({"media"} if chatcodec.get_format(name).parts else set())
    assert _seen(conversations(name)) >= wanted
    assert _seen(conversations(name, exact=True)) >= wanted
    assert not _seen(conversations(name, media=False, max_turns=1)) & {"media", "turns"}


@formats
@given(data=st.data())
def test_completions_are_read_as_their_message(name: str, data: st.DataObject) -> None:
    made = data.draw(completions(name))
    fmt = chatcodec.get_format(name)
    reply = fmt.parse(made.text, tools=made.tools, prompt=made.prompt)
    assert reply.finish_reason in ("stop", "tool_calls")
    turn = made.messages[-1]
    assert turn["role"] == "assistant"
    named = {loss.path for loss in made.losses}
    for number, (call, wanted) in enumerate(zip(reply.message.tool_calls, turn.get("tool_calls", ()), strict=not named)):
        if not any(path.startswith(f"messages[{len(made.messages) - 1}]") for path in named):
            assert call.name == wanted["function"]["name"], number
    stream = fmt.stream(tools=made.tools, prompt=made.prompt)
    for chunk in data.draw(cuts(made.text)):
        stream.feed(chunk)
    stream.close()
    assert stream.reply == reply


@given(data=st.data())
def test_values_fit_their_schemas(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    value = data.draw(fitting(schema))
    kinds = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None), "array": list, "object": dict}
    if isinstance(schema.get("type"), str) and not schema.keys() & {"nullable", "enum", "const"} and schema["type"] in kinds:
        assert isinstance(value, kinds[schema["type"]])  # type: ignore[arg-type]
    json.dumps(value, allow_nan=False)


@formats
@given(data=st.data())
def test_options_are_the_formats_own(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    drawn = data.draw(options(name))
    assert drawn.keys() <= fmt.options.keys()
    fmt.render([{"role": "user", "content": "hi"}], **drawn)


@pytest.mark.filterwarnings("error")
def test_what_hypothesis_prints_of_them_is_short() -> None:
    for name in chatcodec.list_formats():
        for strategy in (conversations(name), completions(name), options(name), tools(), schemas(), testing.json_values(), testing.texts()):
            assert len(repr(strategy)) < 10_000


# -------------------------------------------------------------------------------------------------------------- assertions


@formats
def test_an_unnamed_loss_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fmt, failed = chatcodec.get_format(name), 0
    for probe in probes(fmt, count=3):
        given_row = {"messages": probe.messages, "tools": probe.tools, "options": probe.options}
        try:
            assert_round_trip(fmt, given_row)
        except AssertionError as error:
            assert "cannot be rendered" in str(error)
            continue
        try:
            with monkeypatch.context() as silent:
                silent.setattr("chatcodec.losses.losses_of", lambda *given: [loss for loss in losses_of(*given) if loss.code in FORGED])
                assert_round_trip(fmt, given_row)
        except AssertionError as error:
            assert "no loss names it" in str(error) and "came back as" in str(error)
            failed += 1
    assert failed > 3


@formats
def test_exact_asks_for_all(name: str) -> None:
    fmt = chatcodec.get_format(name)
    lossy: list[dict[str, Any]] = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "reasoning_content": ""}]
    assert assert_round_trip(name, lossy).outcome == "lossy"
    with pytest.raises(AssertionError, match="null_content"):
        assert_round_trip(fmt, lossy, exact=True)
    with pytest.raises(AssertionError, match=r"cannot be rendered: .*messages\[0\]"):
        assert_round_trip(fmt, [{"role": "user", "content": 5}])
    with pytest.raises(CodecError, match="messages"):
        assert_round_trip(fmt, {"message": []})


@formats
def test_readers_that_disagree_fail(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fmt = chatcodec.get_format(name)
    conversation = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "hello", "reasoning_content": "r"}]
    assert_round_trip(fmt, conversation)
    parse = chatcodec.Format.parse

    def deaf(self: chatcodec.Format, text: str, **given: Any) -> chatcodec.Reply:
        reply = parse(self, text, **given)
        reply.message.content = None
        return reply

    monkeypatch.setattr(chatcodec.Format, "parse", deaf)
    with pytest.raises(AssertionError, match="and the whole prompt"):
        assert_round_trip(fmt, conversation)


@formats
def test_templates_are_held_to_the_format(name: str, tmp_path: Path) -> None:
    fmt = chatcodec.get_format(name)
    conversation = chatcodec.Conversation.model_validate({"messages": [{"role": "user", "content": "x"}]})
    file = tmp_path / "own.jinja"
    text = fmt.render(conversation.messages).text
    file.write_text("{{ " + json.dumps(text) + " }}", encoding="utf-8")
    assert_same_text(fmt, file, conversation)
    assert_same_text(name, str(file), {"messages": [{"role": "user", "content": "x"}]})
    with pytest.raises(AssertionError, match=r"text.* at line"):
        assert_same_text(name, file, [{"role": "user", "content": "y"}])


# ------------------------------------------------------------------------------------------------------------ the package


def test_all_that_is_public_is_there() -> None:
    for name in testing.__all__:
        assert getattr(testing, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'conversation'"):
        testing.conversation  # noqa: B018


def test_hypothesis_is_needed_for_strategies_alone() -> None:
    program = """
import sys
sys.modules["hypothesis"] = None
from chatcodec import testing
testing.assert_round_trip("qwen3_5", [{"role": "user", "content": "x"}])
try:
    from chatcodec.testing import conversations
except Exception as error:
    print(type(error).__name__, error)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={"PYTHONPATH": str(CODECS)})
    assert ran.stdout.startswith("CodecError ") and "chatcodec[testing]" in ran.stdout, ran.stderr
