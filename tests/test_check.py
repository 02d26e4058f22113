"""`chatcodec check`: what does not come back is told, and nothing that no loss names goes unseen."""

import dataclasses
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

import chatcodec
import strategies as make
from chatcodec.checks.checking import EXAMPLES, MOST_TURNS, OUTCOMES, Report, check, pattern
from chatcodec.checks.comparing import differences
from chatcodec.checks.probes import probes
from chatcodec.commands import check as command
from chatcodec.errors import parting
from limits import at_most

CODECS = Path(__file__).parent.parent / "codecs"
CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus" / "bfcl.jsonl.gz"
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look it up.",
        "parameters": {"type": "object", "properties": {"where": {"type": "string"}, "n": {"type": "number"}}},
    },
}
CALLS = [{"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": {"n": 1.5, "where": city}}}
         for number, city in enumerate(("Oslo", "Bergen"))]  # fmt: skip
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "How is the weather?"},
    {"role": "assistant", "reasoning_content": "Let me see.", "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "c0", "content": "rain"},
    {"role": "tool", "tool_call_id": "c1", "content": "sun"},
    {"role": "assistant", "reasoning_content": "Two cities.", "content": "Rain and sun."},
]

FORGED = ("control_token_in_content", "control_token_in_argument")
#: Losses that may name what no field shows: a reader of another kind, keys whose order says nothing, an idle key.
UNSHOWN = ("value_type_lost", "key_order_lost", "schema_dropped", "whitespace_trimmed", "tool_result_order", "orphan_tool_result")

formats = pytest.mark.parametrize("name", chatcodec.list_formats())


def silent(name: str) -> chatcodec.Format:
    """The format without its own losses: what it does not give back, nobody names."""
    return dataclasses.replace(chatcodec.get_format(name), losses=lambda *_: [])


# ----------------------------------------------------------------------------------------------------------------- one row


@formats
@given(data=st.data())
def test_losses_name_what_is_different(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    pieces = make.pieces_of(name, whole=data.draw(st.integers(0, 3)) == 0)
    tools = data.draw(make.tools(pieces))
    messages = data.draw(make.conversations(tools, pieces))
    found = check(fmt, messages, tools, **data.draw(make.options(fmt, without=())))
    assert found.unexplained == []
    if found.outcome == "exact":
        assert found.read is not None
        assert [message.role for message in found.read.messages] == [message["role"] for message in messages]
        assert {loss.code for loss in found.losses} <= {"tool_call_id_dropped", "option_ignored", "ends_with_assistant", *FORGED, *UNSHOWN}


@formats
def test_probes_have_no_difference_without_a_name(name: str) -> None:
    """Late system messages, results out of order, media, other roles: what the strategies do not draw."""
    fmt = chatcodec.get_format(name)
    for probe in probes(fmt, count=4):
        found = check(fmt, probe.messages, probe.tools, **probe.options)
        assert found.unexplained == [], probe


@formats
def test_a_conversation_that_comes_back_is_exact(name: str) -> None:
    fmt = chatcodec.get_format(name)
    carried = fmt.parse_prompt(fmt.render(MESSAGES, tools=[TOOL]).text)
    found = check(fmt, carried.messages, carried.tools, **carried.options)
    assert (found.outcome, found.differences) == ("exact", [])
    renamed = [message.model_copy(deep=True) for message in carried.messages]
    for message in renamed:  # ids are names: any will do, as long as they pair
        for call in message.tool_calls:
            call.id = f"other {call.id}"
        if message.tool_call_id:
            message.tool_call_id = f"other {message.tool_call_id}"
    assert check(fmt, renamed, carried.tools, **carried.options).outcome == "exact"


def _swap(read: chatcodec.Conversation) -> None:
    read.messages[3].tool_call_id, read.messages[4].tool_call_id = read.messages[4].tool_call_id, read.messages[3].tool_call_id


def _set(read: chatcodec.Conversation, index: int, field: str, value: Any) -> None:
    setattr(read.messages[index], field, value)


DAMAGES: dict[str, Callable[[chatcodec.Conversation], Any]] = {
    "content": lambda read: _set(read, 1, "content", "How is the weather"),
    "system": lambda read: _set(read, 0, "content", ""),
    "role": lambda read: _set(read, 1, "role", "system"),
    "reasoning": lambda read: _set(read, 2, "reasoning_content", None),
    "answer": lambda read: _set(read, 5, "content", "Rain and sun. "),
    "result": lambda read: _set(read, 3, "content", "sun"),
    "pairs": _swap,
    "a call": lambda read: read.messages[2].tool_calls.pop(),
    "a name": lambda read: setattr(read.messages[2].tool_calls[0].function, "name", "see"),
    "a value": lambda read: read.messages[2].tool_calls[1].arguments.update(where="bergen"),
    "a type": lambda read: read.messages[2].tool_calls[1].arguments.update(n="1.5"),
    "an argument": lambda read: read.messages[2].tool_calls[1].arguments.pop("n"),
    "one argument more": lambda read: read.messages[2].tool_calls[1].arguments.update(z=1),
    "their order": lambda read: _set_arguments(read, dict(reversed(read.messages[2].tool_calls[1].arguments.items()))),
    "a message": lambda read: read.messages.pop(),
    "one message more": lambda read: read.messages.append(read.messages[-1]),
    "a tool": lambda read: _set_tools(read, []),
    "a description": lambda read: (read.tools or [])[0]["function"].update(description="Look."),
    "a schema": lambda read: (read.tools or [])[0]["function"]["parameters"]["properties"]["n"].update(type="string"),
    "a property": lambda read: (read.tools or [])[0]["function"]["parameters"]["properties"].pop("n"),
}


def _set_arguments(read: chatcodec.Conversation, arguments: dict[str, Any]) -> None:
    read.messages[2].tool_calls[1].function.arguments = arguments


def _set_tools(read: chatcodec.Conversation, tools: list[Any]) -> None:
    read.tools = tools


@formats
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_does_not_go_unseen(name: str, damage: str) -> None:
    fmt = chatcodec.get_format(name)
    carried = fmt.parse_prompt(fmt.render(MESSAGES, tools=[TOOL]).text)
    rendered = fmt.render(carried.messages, tools=carried.tools, **carried.options)
    assert differences(rendered, fmt.parse_prompt(rendered.text)) == []
    read = fmt.parse_prompt(rendered.text)
    DAMAGES[damage](read)
    assert [found for found in differences(rendered, read) if not found.codes], damage


@formats
def test_a_loss_that_is_not_named_is_unexplained(name: str) -> None:
    rows = [(probe.messages, probe.tools, probe.options) for probe in probes(chatcodec.get_format(name), count=6)]
    named = [check(chatcodec.get_format(name), messages, tools, **options) for messages, tools, options in rows]
    unnamed = [check(silent(name), messages, tools, **options) for messages, tools, options in rows]
    assert {found.outcome for found in named} >= {"exact", "lossy"}
    assert [found.outcome for found in unnamed].count("unexplained") > 3
    for one, other in zip(named, unnamed, strict=True):
        assert (one.outcome == "exact") <= (other.outcome == "exact")
        assert [each.path for each in one.differences] == [each.path for each in other.differences] or one.losses


@formats
def test_what_cannot_be_rendered_is_refused(name: str) -> None:
    found = check(chatcodec.get_format(name), [{"role": "user", "content": 5}])
    assert found.outcome == "refused"
    assert isinstance(found.error, chatcodec.RenderError) and found.error.path == "messages[0].content"
    deep: Any = []
    for _ in range(3_000):
        deep = [deep]
    calling = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"x": deep}}}]}
    assert check(chatcodec.get_format(name), [MESSAGES[1], calling]).outcome in ("refused", "exact", "lossy")


# ------------------------------------------------------------------------------------------------------------- append-only


@formats
@given(data=st.data())
def test_append_only(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    tools = data.draw(make.tools())
    messages = data.draw(make.conversations(tools, max_turns=3))
    given_options = data.draw(make.options(fmt))
    found = check(fmt, messages, tools, **given_options, add_generation_prompt=data.draw(st.booleans()))
    whole = fmt.render(messages, tools=tools, **given_options).text
    turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    rewritten = []
    for index in turns:
        alone = fmt.render(messages[: index + 1], tools=tools, **given_options).text
        if not whole.startswith(alone):
            rewritten.append((index, next(place for place, pair in enumerate(zip(alone, whole, strict=False)) if pair[0] != pair[1])))
    assert [turn[:2] for turn in found.rewritten] == rewritten
    assert (found.turns, found.passed_over) == (len(turns), 0)


def test_a_template_that_drops_earlier_reasoning_is_not_append_only() -> None:
    messages = [*MESSAGES, {"role": "user", "content": "Thanks."}, {"role": "assistant", "content": "Welcome."}]
    found = {name: check(chatcodec.get_format(name), messages, [TOOL]) for name in chatcodec.list_formats()}
    assert {name for name, each in found.items() if each.rewritten} == {"solar_open2"}
    assert [turn.message for turn in found["solar_open2"].rewritten] == [2, 5]
    assert "Let me see." in found["solar_open2"].rewritten[0].alone


@formats
def test_long_conversations_cost_no_square(name: str) -> None:
    fmt = chatcodec.get_format(name)
    turns = MESSAGES[1:] * 500
    with at_most(20):
        found = check(fmt, turns, [TOOL])
    assert found.turns == MOST_TURNS and found.passed_over == 1_000 - MOST_TURNS


@given(st.text("ab", max_size=30), st.text("ab", max_size=30))
def test_where_two_texts_part(one: str, other: str) -> None:
    place = parting(one, other)
    assert one[:place] == other[:place]
    assert one[place : place + 1] != other[place : place + 1] or one == other


# --------------------------------------------------------------------------------------------------------------- many rows


@formats
def test_a_report_counts_every_row_and_keeps_few(name: str) -> None:
    fmt = chatcodec.get_format(name)
    report = Report(name)
    rows = [(MESSAGES, [TOOL]), ([MESSAGES[1]], None), ([{"role": "user", "content": 5}], None)]
    for messages, tools in rows * 50:
        report.add(check(fmt, messages, tools))
    assert report.rows == 150 == sum(report.outcomes.values())
    assert report.outcomes["refused"] == 50
    labels = [label for each in report.examples for label in each.checked.labels]
    assert all(labels.count(label) >= EXAMPLES for label in labels)
    assert len(report.examples) <= EXAMPLES * len(set(labels))
    assert sum(report.refusals.values()) == 50
    plain = json.loads(json.dumps(report.as_dict()))
    assert plain["rows"] == sum(plain[outcome] for outcome in OUTCOMES)
    codes = {loss.code for loss in fmt.render(MESSAGES, tools=[TOOL]).losses}
    assert {loss["code"] for loss in plain["losses"]} == codes
    assert all(loss["rows"] == 50 and loss["count"] % 50 == 0 for loss in plain["losses"])


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("messages[12].content[3]", "messages[].content[]"),
        ("messages[2].tool_calls[0].function.arguments.a b.c", "messages[].tool_calls[].function.arguments.*"),
        ("messages[2].tool_calls[0].function.arguments", "messages[].tool_calls[].function.arguments"),
        ("tools[1].function.parameters.properties.x y.minimum", "tools[].function.parameters.properties.*"),
        ("tools[1].function.parameters.properties.a.items.type", "tools[].function.parameters.properties.*.items.type"),
        ("options.now", "options.now"),
    ],
)
def test_patterns_of_paths(path: str, wanted: str) -> None:
    assert pattern(path) == wanted


@formats
def test_real_conversations(name: str) -> None:
    if not CORPUS.is_file():
        pytest.skip("there is no shared/corpus beside the project root")
    fmt, report = chatcodec.get_format(name), Report(name)
    with gzip.open(CORPUS, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if number % 50 == 0:
                row = json.loads(line)
                report.add(check(fmt, row["messages"], row["tools"]))
    assert report.rows > 80
    assert report.outcomes["unexplained"] == report.outcomes["refused"] == report.rewritten == 0


# -------------------------------------------------------------------------------------------------------- the command line


def run(*arguments: str, stdin: str = "") -> Result:
    app = typer.Typer()
    app.callback()(lambda: None)
    command.register(app)
    return CliRunner().invoke(app, ["check", *arguments], input=stdin, env={"TERM": "xterm-256color", "COLUMNS": "160"})


@pytest.fixture
def rows(tmp_path: Path) -> str:
    file = tmp_path / "rows.jsonl"
    lines = [
        {"messages": MESSAGES, "tools": [TOOL]},
        {"messages": json.dumps(MESSAGES[:2]), "tools": None, "options": {"add_generation_prompt": True}, "id": 7},
        {"messages": [{"role": "user", "content": 5}]},
        {"conversation": []},
    ]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n{no json\n", encoding="utf-8")
    return str(file)


@formats
def test_the_command_counts(name: str, rows: str) -> None:
    result = run(name, rows, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert (found["rows"], found["refused"], found["unexplained"]) == (5, 3, 0)
    assert {row["row"] for row in found["refused_rows"]} <= {"3", "4", "5"}
    assert {each["code"] for each in found["refusals"]} == {"content_not_string", "bad_row"}
    pretty = run(name, rows, "--pretty")
    assert pretty.exit_code == 0 and "tool_call_id_dropped" in pretty.stdout and "5 rows" in pretty.stdout
    assert json.loads(run(name, rows, "--limit", "2", "--json").stdout)["rows"] == 2


@formats
def test_what_no_loss_names_is_told_and_fails(name: str, rows: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "get_format", silent)
    data = tmp_path / "more.jsonl"
    lossy = [probe for probe in probes(silent(name), count=4) if check(silent(name), *probe[1:3], **probe.options).unexplained]
    lines = [json.dumps({"messages": probe.messages, "tools": probe.tools, "options": probe.options}, default=str) for probe in lossy]
    data.write_text("\n".join(lines), encoding="utf-8")
    result = run(name, str(data), "--json", "--html", str(tmp_path / "page.html"))
    found = json.loads(result.stdout)
    assert result.exit_code == 1 and found["unexplained"] == found["rows"] > 0
    assert "unexplained" in {each["code"] for each in found["differences"]}
    assert found["unexplained_rows"][0]["differences"][0]["path"]
    assert "unexplained" in (tmp_path / "page.html").read_text(encoding="utf-8")
    pretty = run(name, str(data), "--pretty")
    assert pretty.exit_code == 1 and "came back as" in pretty.stdout


def test_options_of_the_command_come_first(rows: str) -> None:
    off, on = (json.loads(run("qwen3_5", rows, "--json", "--option", f"add_generation_prompt={flag}").stdout) for flag in ("false", "true"))
    assert {loss["code"] for loss in on["losses"]} - {loss["code"] for loss in off["losses"]} == {"ends_with_assistant"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("qwen3_6", "{rows}"),
        ("qwen3_5", "{rows}", "--option", "enable_thinkin=true"),
        ("qwen3_5", "{rows}.missing"),
        ("qwen3_5", "{rows}", "--html", "{rows}/page.html"),
        ("solar_open2", "{rows}", "--option", "now=yesterday"),
    ],
)
def test_bad_usage_is_one_line(arguments: tuple[str, ...], rows: str) -> None:
    result = run(*(each.format(rows=rows) for each in arguments))
    assert result.exit_code == 2
    assert result.stderr.startswith("chatcodec: ") and result.stderr.count("\n") == 1


def test_rows_come_from_a_pipe_and_from_a_directory(rows: str) -> None:
    program = "import typer; from chatcodec.commands import check; app = typer.Typer(); check.register(app); app()"
    variables = os.environ | {"PYTHONPATH": str(CODECS)}
    given = Path(rows).read_bytes()
    ran = subprocess.run([sys.executable, "-c", program, "qwen3_5", "-", "--json"], input=given, capture_output=True, env=variables)
    assert json.loads(ran.stdout)["rows"] == 5, ran.stderr
    folder = Path(rows).parent
    (folder / "second.jsonl").write_bytes(given)
    both = json.loads(run("qwen3_5", str(folder), "--json").stdout)
    assert both["rows"] == 10
    assert both["refused_rows"][0]["row"].startswith("rows.jsonl:")
