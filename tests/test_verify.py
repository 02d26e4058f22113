"""`chatcodec verify`: a chat template is run as transformers runs it, and where it parts from a format is found and told.

The templates are small ones of these tests' own, among them templates that hold nothing but what a format wrote; where the
real ones are at hand (`shared/oracle` beside the project root), they are verified too.
"""

import json
import sys
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

import chatcodec
import strategies as make
from chatcodec.checks import templates
from chatcodec.checks.probes import features_of, probes
from chatcodec.checks.templates import ChatTemplate, Refused, Sources, Written, compile_template, prepared, read_templates
from chatcodec.checks.verifying import Agreed, Parting, compare, verify
from chatcodec.commands import verify as command
from chatcodec.errors import CodecError

REAL = Path(__file__).resolve().parents[2] / "shared" / "oracle" / "templates"
USER = {"role": "user", "content": "hello"}

formats = pytest.mark.parametrize("name", chatcodec.list_formats())


def template(source: str, **variables: Any) -> ChatTemplate:
    return compile_template(Sources("a template", {"default": source}, variables))


def written(source: str, messages: list[Any] | None = None, **given: Any) -> str:
    made = template(source).render(messages or [], **given)
    assert isinstance(made, Written), made
    return made.text


def saying(text: str) -> ChatTemplate:
    """A template that says one text, whatever it is asked."""
    return template("{{ text }}", text=text)


def real(name: str) -> str:
    path = REAL / f"{name}.jinja"
    if not path.is_file():
        pytest.skip("the models' own templates are not at hand: there is no shared/oracle beside the project root")
    return str(path)


# --------------------------------------------------------------------------------------------------------- the environment


def test_blocks_are_trimmed_as_in_transformers() -> None:
    assert written("a\n    {% if true %}\nb\n    {% endif %}\nc") == "a\nb\nc"


def test_loops_can_be_left() -> None:
    leaving = "{% if each == 2 %}{% continue %}{% endif %}{% if each == 4 %}{% break %}{% endif %}"
    source = "{% for each in [1, 2, 3, 4] %}" + leaving + "{{ each }}{% endfor %}"
    assert written(source) == "13"


def test_json_is_written_as_it_is() -> None:
    value = [{"role": "user", "content": {"b": "<é>", "a": [1.0, 2**70, None, True]}}]
    assert written("{{ messages[0].content | tojson }}", value) == '{"b": "<é>", "a": [1.0, 1180591620717411303424, null, true]}'
    source = "{{ messages[0].content | tojson(separators=(',', ':'), sort_keys=true) }}"
    assert written(source, value) == '{"a":[1.0,1180591620717411303424,null,true],"b":"<é>"}'
    assert written("{{ messages[0].content | tojson(indent=2) }}", value).count("\n") == 8


def test_the_clock_is_the_one_given() -> None:
    for now in (date(2001, 2, 3), datetime(2001, 2, 3, 4)):
        assert written("{{ strftime_now('%d.%m.%Y') }}", now=now) == "03.02.2001"


def test_generation_is_tracked() -> None:
    source = "ab{% generation %}cd{% endgeneration %}e{% for m in messages %}{% generation %}{{ m }}{% endgeneration %}-{% endfor %}"
    assert template(source).render(["xyz", ""]) == Written("abcdexyz--", [(2, 4), (5, 8), (9, 9)])


def test_what_is_always_there() -> None:
    source = "{{ [tools is none, documents is none, add_generation_prompt is false, messages | length, bos_token, other is defined] }}"
    made = template(source, bos_token="<s>").render([USER], [])
    assert made == Written("[True, True, True, 1, '<s>', False]", [])


def test_a_template_may_raise_and_that_is_its_answer() -> None:
    assert template("{{ raise_exception('No such role.') }}").render([]) == Refused("No such role.", True)
    undefined = template("{{ a.b }}").render([])
    assert isinstance(undefined, Refused) and not undefined.deliberate
    assert isinstance(template("{{ 1 // 0 }}").render([]), Refused)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__ }}",
        "{% for a in range(999999) %}{% endfor %}",
        "{{ raise_exception.__globals__ }}",
        "{{ cycler.__init__.__globals__.os }}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    made = template("{{ 'x' }}" + source).render([USER])
    assert (isinstance(made, Refused) and not made.deliberate) or made == Written("x", []), made


def test_a_template_that_runs_on_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "SECONDS", 0.2)
    endless = "{% set r = range(99999) %}{% for a in r %}{% for b in r %}{% for c in r %}{% endfor %}{% endfor %}{% endfor %}"
    made = template(endless).render([])
    assert isinstance(made, Refused) and "0.2 seconds" in made.reason
    monkeypatch.setattr(templates, "SECONDS", 10)
    monkeypatch.setattr(templates, "MOST_WRITTEN", 1000)
    made = template("{% for a in range(9999) %}{{ a }}, {% endfor %}").render([])
    assert isinstance(made, Refused) and "characters" in made.reason
    assert written("{{ 'still well' }}") == "still well"


@pytest.mark.parametrize("source", ["{% if %}", "{{ x | nofilter }}", "{% for %}", "{% generation %}", "{{ " + "(" * 5_000])
def test_a_faulty_template_is_an_error_of_ours(source: str) -> None:
    with pytest.raises(CodecError, match="'a template': the template is faulty"):
        template(source)


def test_without_jinja_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "jinja2"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CodecError, match=r"chatcodec\[verify\]"):
        template("x")


def test_messages_are_prepared_as_transformers_does() -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": '{"b": 1.0, "a": [2]}'}}
    given: list[Any] = [
        {"role": "user", "content": None, "name": None},
        {"role": "assistant", "reasoning": "Hm.", "tool_calls": [call, {"name": "g", "arguments": None}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    user, assistant, parts = prepared(given, text_only=True)
    assert user == {"role": "user"}
    assert {key: assistant[key] for key in ("reasoning", "reasoning_content", "thinking")} == dict.fromkeys(
        ("reasoning", "reasoning_content", "thinking"), "Hm."
    )
    assert json.dumps(assistant["tool_calls"][0]["function"]["arguments"]) == '{"b": 1.0, "a": [2]}'
    assert assistant["tool_calls"][1]["arguments"] == {}
    assert parts["content"] == "ab" and prepared(given, text_only=False)[2] == given[2]
    assert given[1]["tool_calls"][0] is call and isinstance(call["function"], dict), "the caller's own stay as they are"
    assert prepared([chatcodec.Message(role="user", content="x")], text_only=True) == [{"role": "user", "content": "x"}]


# -------------------------------------------------------------------------------------------------------- where from


def test_templates_are_found_where_models_keep_them(tmp_path: Path) -> None:
    config = {"chat_template": "from the config", "bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    found = read_templates(str(tmp_path))
    assert (found.templates, found.variables) == ({"default": "from the config"}, {"bos_token": "<s>", "eos_token": "</s>"})
    assert read_templates(str(tmp_path / "tokenizer_config.json")).templates == found.templates
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "from its own JSON"}), encoding="utf-8")
    assert read_templates(str(tmp_path)).templates == {"default": "from its own JSON"}
    (tmp_path / "chat_template.jinja").write_text("from its own file: ü", encoding="utf-8")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("with tools", encoding="utf-8")
    found = read_templates(str(tmp_path))
    assert found.templates == {"default": "from its own file: ü", "tool_use": "with tools"}
    compiled = compile_template(found)
    assert compiled.render([]) == Written("from its own file: ü", [])
    assert compiled.render([], [{"type": "function"}]) == Written("with tools", [])
    assert compile_template(found, "default").render([], [{}]) == Written("from its own file: ü", [])


def test_named_templates(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer_config.json"
    named = [{"name": "rag", "template": "r"}, {"name": "tool_use", "template": "t"}]
    file.write_text(json.dumps({"chat_template": named}), encoding="utf-8")
    found = read_templates(str(file))
    with pytest.raises(CodecError, match="choose one of rag, tool_use"):
        compile_template(found)
    with pytest.raises(CodecError, match="did you mean 'rag'"):
        compile_template(found, "rog")
    assert compile_template(found, "rag").render([], [{}]) == Written("r", [])


@pytest.mark.parametrize("content", ["[]", "{", '{"chat_template": 5}', '{"chat_template": [1]}', "{}", "[" * 100_000])
def test_files_without_a_template(content: str, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer_config.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(CodecError):
        read_templates(str(file))
    with pytest.raises(CodecError):
        read_templates(str(tmp_path / "missing.jinja"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(CodecError, match="no chat template"):
        read_templates(str(tmp_path / "empty"))
    (tmp_path / "bad.jinja").write_bytes(b"\xff")
    with pytest.raises(CodecError, match="invalid UTF-8 at byte 0"):
        read_templates(str(tmp_path / "bad.jinja"))


# ------------------------------------------------------------------------------------------------------------ comparing


@formats
@given(data=st.data())
def test_the_first_difference_is_found(name: str, data: st.DataObject) -> None:
    fmt = chatcodec.get_format(name)
    pieces = make.pieces_of(name, whole=True)
    tools = data.draw(make.tools(pieces))
    messages, options = data.draw(make.conversations(tools, pieces)), data.draw(make.options(fmt, without=("now",)))
    clock: dict[str, Any] = {"now": datetime(2026, 3, 14)} if "now" in fmt.options else {}
    rendered = make.rendered(fmt, messages, tools=tools, **options, **clock)
    text = rendered.text
    assert compare(fmt, saying(text), messages, tools, **options, **clock) == Agreed(refused=False)
    place = data.draw(st.integers(0, len(text)))
    other = text[:place] + "\x00" + data.draw(st.sampled_from(["", text[place:], text[place + 1 :]]))
    found = compare(fmt, saying(other), messages, tools, **options, **clock)
    assert isinstance(found, Parting) and (found.kind, found.position) == ("text", place)
    assert found.line == text.count("\n", 0, place) + 1
    assert found.ours in text and found.theirs in other and "\x00" in found.theirs
    span = next((span for span in rendered.spans if span.start <= place < span.end), None)
    assert found.place.startswith("the end" if span is None else span.kind.replace("_", " "))
    cut = compare(fmt, saying(text[:place]), messages, tools, **options, **clock)
    assert (cut == Agreed(refused=False)) == (place == len(text))


@formats
def test_who_refuses(name: str) -> None:
    fmt = chatcodec.get_format(name)
    bad: list[Any] = [{"role": "user", "content": 5}]
    refusing = template("{{ raise_exception('No.') }}")
    assert compare(fmt, refusing, bad) == Agreed(refused=True)
    found = compare(fmt, refusing, [USER])
    assert isinstance(found, Parting) and (found.kind, found.theirs) == ("template_refuses", "No.")
    found = compare(fmt, saying("x"), bad)
    assert isinstance(found, Parting) and found.kind == "format_refuses" and "messages[0].content" in found.ours


def test_generation_spans_are_compared_where_a_template_marks_them() -> None:
    for name in chatcodec.list_formats():
        fmt = chatcodec.get_format(name)
        rendered = fmt.render([USER, {"role": "assistant", "content": "hi"}])
        marks = "{{ text[:3] }}{% generation %}{{ text[3:] }}{% endgeneration %}"
        found = compare(fmt, template(marks, text=rendered.text), [USER, {"role": "assistant", "content": "hi"}])
        assert isinstance(found, Parting) and found.kind == "generation", name
        assert f"3 to {len(rendered.text)}" in found.theirs


@formats
def test_probes_are_the_same_for_the_same_seed(name: str) -> None:
    fmt = chatcodec.get_format(name)
    one, other, third = (list(probes(fmt, count=3, seed=seed)) for seed in (1, 1, 2))
    assert one == other != third
    assert {probe.option for probe in one} - {None} == set(fmt.options)
    rendered = 0
    for probe in one:
        assert probe.feature.startswith("option ") or set(features_of(probe.messages, probe.tools, probe.options)) >= {"plain"}
        try:
            fmt.render(probe.messages, tools=probe.tools, **probe.options)
            rendered += 1
        except chatcodec.RenderError as error:
            assert error.code not in ("bad_message", "bad_tool", "bad_option", "unknown_option"), error
    assert rendered > len(one) / 2


@formats
def test_a_difference_belongs_to_its_feature(name: str) -> None:
    """A template that writes what the format writes, but for one feature."""
    fmt = chatcodec.get_format(name)

    class Mimic:
        origin, tracks = "a mimic", False

        def __init__(self, spoilt: str) -> None:
            self.spoilt = spoilt

        def render(self, messages: Any, tools: Any = None, *, now: Any = None, **options: Any) -> Written | Refused:
            clock = {"now": now} if "now" in fmt.options else {}
            try:
                text = fmt.render(messages, tools=tools, **options, **clock).text
            except chatcodec.RenderError as error:
                return Refused(error.reason, True)
            has = self.spoilt in features_of(messages, tools, options)
            return Written(text + "!" if has else text, [])

    same: Any = Mimic("no such feature")
    assert verify(fmt, same, count=4).differ == 0
    for feature, spared in (("reasoning", "calls"), ("tool results", "reasoning"), ("tools", "multi-turn"), ("multi-turn", "tools")):
        mimic: Any = Mimic(feature)
        tallies = {name: tally for (_, name), tally in verify(fmt, mimic, count=12).features.items()}
        assert tallies[feature].differ > 0 and tallies[feature].first is not None
        assert tallies[spared].differ == 0 and tallies["plain"].differ == 0
        assert all(tally.differ == 0 for name, tally in tallies.items() if name.startswith("option ")), "it is no option's"
    option = next(each for each in fmt.options if each != "add_generation_prompt")
    tricky: Any = Mimic(f"option {option}")
    tallies = {name: tally for (_, name), tally in verify(fmt, tricky, count=12).features.items()}
    assert {name for name, tally in tallies.items() if tally.differ} == {f"option {option}"}


@formats
def test_the_models_own_templates(name: str) -> None:
    compiled = compile_template(read_templates(real(name)))
    verdict = verify(chatcodec.get_format(name), compiled, count=12)
    assert verdict.cases > 300
    assert [(feature, tally.first) for feature, tally in verdict.features.items() if tally.differ] == []
    assert verdict.features["generated", "calls"].refused == 0


@formats
def test_a_changed_template_is_told(name: str, tmp_path: Path) -> None:
    source = Path(real(name)).read_text(encoding="utf-8")
    changed = tmp_path / "changed.jinja"
    changed.write_text(source + "{{ ' ' if tools else '' }}", encoding="utf-8")
    verdict = verify(chatcodec.get_format(name), compile_template(read_templates(str(changed))), count=4)
    features = {feature: tally for (_, feature), tally in verdict.features.items()}
    assert features["tools"].differ == features["tools"].cases and features["plain"].differ == 0
    first = features["tools"].first
    assert first is not None and first.place == "the end"


# ------------------------------------------------------------------------------------------------------ the command line


def run(*arguments: str, stdin: str = "") -> Result:
    app = typer.Typer()
    app.callback()(lambda: None)
    command.register(app)
    return CliRunner().invoke(app, ["verify", *arguments], input=stdin, env={"TERM": "xterm-256color", "COLUMNS": "160"})


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A template that knows one conversation only, and rows with that one, another, and one that is none."""
    text = chatcodec.get_format("qwen3_5").render([USER]).text
    wrong = tmp_path / "wrong.jinja"
    wrong.write_text("{{ " + json.dumps(text) + " }}", encoding="utf-8")
    rows = tmp_path / "rows.jsonl"
    lines = [{"messages": [USER]}, {"messages": [{"role": "user", "content": "other\x1b[31m"}], "tools": []}, {"messages": 5}]
    rows.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return str(wrong), str(rows)


def test_the_command_tells_the_first_difference(files: tuple[str, str]) -> None:
    wrong, rows = files
    result = run("qwen3_5", rows, "--template", wrong, "--cases", "0", "--json")
    assert result.exit_code == 1, result.stderr
    found = json.loads(result.stdout)
    assert (found["cases"], found["differ"], found["bad_rows"]["count"]) == (2, 1, 1)
    assert found["bad_rows"]["first"][0]["row"] == "3"
    plain = next(each for each in found["features"] if each["feature"] == "plain")
    assert (plain["origin"], plain["cases"], plain["differ"], plain["first"]["at"]) == ("data", 2, 1, "2")
    assert plain["first"]["place"] == "user of messages[0]"
    pretty = run("qwen3_5", rows, "-t", wrong, "--cases", "0", "--pretty")
    assert pretty.exit_code == 1
    assert "other text" in pretty.stdout and "row 3" in pretty.stdout and "other\x1b[31m" not in pretty.stdout
    assert run("qwen3_5", rows, "-t", wrong, "--cases", "0", "--limit", "1", "--json").exit_code == 0


@formats
def test_the_command_agrees_with_the_models_own_template(name: str) -> None:
    result = run(name, "--template", real(name), "--cases", "3", "--seed", "7", "--pretty")
    assert result.exit_code == 0, result.stdout
    assert "the same" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("qwen3_6", "-t", "{wrong}"),
        ("qwen3_5", "-t", "{wrong}.missing"),
        ("qwen3_5", "{rows}.missing", "-t", "{wrong}", "--cases", "0"),
        ("qwen3_5", "-t", "{wrong}", "--option", "enable_thinkin=1"),
        ("qwen3_5", "-t", "{wrong}", "--template-name", "rag"),
        ("qwen3_5", "-t", "{rows}x.jinja"),
    ],
)
def test_bad_usage_is_one_line(arguments: tuple[str, ...], files: tuple[str, str]) -> None:
    wrong, rows = files
    Path(f"{rows}x.jinja").write_text("{% if %}", encoding="utf-8")
    result = run(*(each.format(wrong=wrong, rows=rows) for each in arguments))
    assert result.exit_code == 2, result.stdout
    assert result.stderr.startswith("chatcodec: ") and result.stderr.count("\n") == 1
