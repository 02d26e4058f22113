"""The cases from public bug reports: what a parser, a stream and a renderer owe, with the reason for each."""

import copy
import json
import pickle
from typing import Any

import pytest

import chatcodec
from chatcodec.errors import DIAGNOSTICS
from conformance import Case, all_cases, cuts, text_of
from limits import at_most


def _ids(case: Case) -> str:
    return f"{case['format']}-{case['id']}"


parse_cases = pytest.mark.parametrize("case", all_cases("parse", "stream"), ids=_ids)
render_cases = pytest.mark.parametrize("case", all_cases("render", "mask"), ids=_ids)


def _opening(case: Case) -> dict[str, Any]:
    """How the completion of a case is to be read: its tools, and the prompt that it continues."""
    fmt, given = chatcodec.get_format(case["format"]), case["input"]
    asked = [{"role": "user", "content": "?"}]
    prompt = fmt.render(asked, tools=given.get("tools"), add_generation_prompt=True, **given.get("kwargs", {}))
    return {"tools": given.get("tools"), "prompt": prompt}


def _codes(found: Any) -> set[str]:
    return {name for one in found for name in (one.code, f"{one.code}:{one.detail}")}


@parse_cases
def test_parse(case: Case) -> None:
    fmt, expect = chatcodec.get_format(case["format"]), case["expect"]
    opening = _opening(case)
    with at_most(expect.get("max_seconds", 5)):
        reply = fmt.parse(text_of(case), finish_reason=case["input"].get("finish_reason"), **opening)
    message = reply.message
    calls = [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls]
    found = {"reasoning": message.reasoning_content, "content": message.content, "tool_calls": calls, "tool_calls_len": len(calls)}
    for key, value in found.items():
        assert value == expect.get(key, value), case["why"]
    wanted = {*expect.get("diagnostics", ()), *([expect["error"]] if "error" in expect else [])}
    assert wanted <= _codes(reply.diagnostics), case["why"]
    if "gen" not in case["input"]:
        named = {code.split(":")[0] for code in wanted}
        assert {one.code for one in reply.diagnostics if one.severity != "info"} <= named, case["why"]
    if "partial" in expect:
        assert reply.partial is not None
        assert {"name": reply.partial.name, "arguments": reply.partial.arguments, "open": reply.partial.open} == expect["partial"]
        assert reply.finish_reason == "length"


@parse_cases
def test_a_stream_gives_the_same(case: Case) -> None:
    fmt, opening = chatcodec.get_format(case["format"]), _opening(case)
    reason = case["input"].get("finish_reason")
    reply = fmt.parse(text_of(case), finish_reason=reason, **opening)
    for chunks in cuts(case):
        stream = fmt.stream(**opening)
        events = [event for chunk in chunks for event in stream.feed(chunk)] + stream.close(reason)
        assert stream.reply == reply
        arguments: dict[int, str] = {}
        for event in events:
            if isinstance(event, chatcodec.ArgumentsDelta):
                arguments[event.index] = arguments.get(event.index, "") + event.text
        ended = [event.index for event in events if isinstance(event, chatcodec.ToolCallEnd)]
        assert [json.loads(arguments[index]) for index in ended] == [call.arguments for call in reply.message.tool_calls]


@parse_cases
def test_canonical_texts_render_to_themselves(case: Case) -> None:
    """Where a case says so, the message renders to the very text that was parsed; else to another."""
    canonical, fmt = case["expect"].get("canonical"), chatcodec.get_format(case["format"])
    opening = _opening(case)
    reply = fmt.parse(text_of(case), finish_reason=case["input"].get("finish_reason"), **opening)
    if canonical is None:
        return
    message = reply.message.model_copy(deep=True)
    for number, call in enumerate(message.tool_calls):
        call.id = f"call_{number}"
    asked: list[Any] = [{"role": "user", "content": "?"}, message]
    rendered = fmt.render(asked, tools=case["input"].get("tools"), **case["input"].get("kwargs", {}))
    span = rendered.sampled_spans[0]
    assert (span is not None and rendered.text[slice(*span)] == text_of(case)) == canonical, case["why"]


@pytest.mark.parametrize("case", all_cases("stream"), ids=_ids)
def test_a_stream_can_be_copied_and_pickled_at_every_cut(case: Case) -> None:
    fmt, opening = chatcodec.get_format(case["format"]), _opening(case)
    text, reason = text_of(case), case["input"].get("finish_reason")
    reply = fmt.parse(text, finish_reason=reason, **opening)
    stream = fmt.stream(**opening)
    for middle in range(min(len(text), 600) + 1):
        for other in (copy.deepcopy(stream), pickle.loads(pickle.dumps(stream))):
            other.feed(text[middle:])
            other.close(reason)
            assert other.reply == reply
        stream.feed(text[middle : middle + 1])


@render_cases
def test_render(case: Case) -> None:
    fmt, given, expect = chatcodec.get_format(case["format"]), case["input"], case["expect"]
    if "error" in expect:
        with pytest.raises(chatcodec.RenderError) as refused:
            fmt.render(given["messages"], tools=given["tools"], **given["kwargs"])
        assert refused.value.code == expect["error"], case["why"]
        words = expect["template_exception"].removeprefix("TemplateError: ")
        assert refused.value.reason == (words if expect["template_exception"].startswith("TemplateError") else expect["error"])
        return
    rendered = fmt.render(given["messages"], tools=given["tools"], **given["kwargs"])
    assert rendered.text == expect["text"], case["why"]
    assert set(expect.get("diagnostics", ())) <= _codes(rendered.losses), case["why"]
    if "spans_template" in expect:
        assert [list(span) for span in rendered.generation_spans] == expect["spans_template"]
    if "spans_sampled" in expect:
        assert [span and list(span) for span in rendered.sampled_spans] == expect["spans_sampled"], case["why"]
    if expect.get("prefix_stable"):
        options = {key: value for key, value in given["kwargs"].items() if key != "add_generation_prompt"}
        assert rendered.text.startswith(fmt.render(given["messages"][:2], tools=given["tools"], **options).text)


def test_every_format_has_cases_and_their_codes_are_known() -> None:
    for name in chatcodec.list_formats():
        assert {case["kind"] for case in all_cases("parse", "stream", "render") if case["format"] == name} == {"parse", "stream", "render"}
    for case in all_cases("parse", "stream"):
        assert {code.split(":")[0] for code in case["expect"].get("diagnostics", ())} <= DIAGNOSTICS.keys()
