"""The command line: what it prints is what the library gives, to the byte, and nothing that comes in can make it trip.

Every format is tested by being registered; what is told to a format here is made with the format itself.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import IO, Any

import pytest
from typer.testing import CliRunner, Result

import chatcodec
from chatcodec.cli import app

CODECS = Path(__file__).parent.parent / "codecs"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather — wherever.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
        },
    }
]
CALL = {"id": "c0", "type": "function", "function": {"name": "weather", "arguments": {"city": "Łódź 東京", "days": 3}}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "How is\r\nthe weather? 🌧"},
    {"role": "assistant", "reasoning_content": "I must look.", "tool_calls": [CALL]},
]
SGR = re.compile(r"\x1b\[[0-9;]*m")

every_format = pytest.mark.parametrize("name", chatcodec.list_formats())


def run(*arguments: str, stdin: str | bytes = "") -> Result:
    return CliRunner().invoke(app, arguments, input=stdin, env={"TERM": "xterm-256color", "NO_COLOR": None, "COLUMNS": "200"})


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(CODECS), os.environ.get("PYTHONPATH"))))}


def spawn(*arguments: str, stdout: int | IO[bytes] = subprocess.PIPE, unbuffered: str = "") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "chatcodec", *arguments]
    variables = environment() | {"PYTHONUNBUFFERED": unbuffered}
    return subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE)


def sampled(name: str) -> tuple[str, str]:
    """A prompt, and the completion with a call that follows it."""
    rendered = chatcodec.get_format(name).render(MESSAGES, tools=TOOLS)
    span = rendered.sampled_spans[-1]
    assert span is not None
    return rendered.text[: span[0]], rendered.text[span[0] : span[1]]


@pytest.fixture
def tools_file(tmp_path: Path) -> str:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(TOOLS))
    return str(path)


def complaint(result: Result) -> str:
    """The one line of a refusal."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("chatcodec: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


# -------------------------------------------------------------------------------------------------------------- formats


def test_formats_lists_everything() -> None:
    listed = json.loads(run("formats").stdout)
    assert [each["name"] for each in listed] == chatcodec.list_formats()
    for each in listed:
        known = chatcodec.get_format(each["name"])
        assert each["title"] == known.title
        assert each["options"].keys() == known.options.keys()
    assert run("formats", "--json").stdout == run("formats").stdout


def test_formats_as_a_table() -> None:
    shown = SGR.sub("", CliRunner().invoke(app, ["formats", "--pretty"], env={"COLUMNS": "80"}).stdout)
    assert "…" not in shown
    for name in chatcodec.list_formats():
        assert name in shown
        assert all(option in shown for option in chatcodec.get_format(name).options)


# --------------------------------------------------------------------------------------------------------------- render


@every_format
def test_render_prints_the_text_and_nothing_else(name: str) -> None:
    given = json.dumps({"messages": MESSAGES, "tools": TOOLS})
    expected = chatcodec.get_format(name).render(MESSAGES, tools=TOOLS).text
    result = run("render", name, stdin=given)
    assert result.exit_code == 0
    assert result.stdout_bytes == expected.encode()
    assert run("render", name, "-", stdin=given).stdout_bytes == expected.encode()


@every_format
def test_render_takes_a_list_of_messages_from_a_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "messages.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(MESSAGES).encode())  # as some editors write it
    assert run("render", name, str(path)).stdout_bytes == chatcodec.get_format(name).render(MESSAGES).text.encode()


@every_format
def test_options_of_the_command_come_first(name: str) -> None:
    fmt = chatcodec.get_format(name)
    given = json.dumps({"messages": MESSAGES[:1], "options": {"add_generation_prompt": False}})
    result = run("render", name, "--option", "add_generation_prompt=true", stdin=given)
    assert result.stdout_bytes == fmt.render(MESSAGES[:1], add_generation_prompt=True).text.encode()
    assert run("render", name, stdin=given).stdout_bytes == fmt.render(MESSAGES[:1]).text.encode()


@every_format
def test_render_as_json(name: str) -> None:
    rendered = chatcodec.get_format(name).render(MESSAGES, tools=TOOLS)
    shown = json.loads(run("render", name, "--json", stdin=json.dumps({"messages": MESSAGES, "tools": TOOLS})).stdout)
    assert shown["text"] == rendered.text
    assert "".join(rendered.text[span["start"] : span["end"]] for span in shown["spans"]) == rendered.text
    assert shown["generation_spans"] == [list(span) for span in rendered.generation_spans]
    assert [loss["code"] for loss in shown["losses"]] == [loss.code for loss in rendered.losses]


@every_format
def test_half_a_surrogate_pair(name: str) -> None:
    given = '[{"role": "user", "content": "a\\ud83d"}]'
    assert "--json" in complaint(run("render", name, stdin=given))
    result = run("render", name, "--json", stdin=given)
    assert result.exit_code == 0
    assert "a\\ud83d" in result.stdout
    assert "a\ud83d" in json.loads(result.stdout)["text"]


@every_format
def test_days_are_given_as_text(name: str) -> None:
    given = json.dumps(MESSAGES[:1])
    for option, known in chatcodec.get_format(name).options.items():
        if date in known.types:
            assert run("render", name, "--option", f"{option}=2026-03-14", stdin=given).exit_code == 0
            assert "'soon'" in complaint(run("render", name, "--option", f"{option}=soon", stdin=given))


@every_format
def test_options_survive_the_way_there_and_back(name: str) -> None:
    given = json.dumps({"messages": MESSAGES[:1], "tools": TOOLS})
    for option, known in chatcodec.get_format(name).options.items():
        if bool in known.types:
            text = run("render", name, "--option", f"{option}=true", stdin=given).stdout_bytes
            conversation = run("parse-prompt", name, stdin=text)
            assert conversation.exit_code == 0, option
            assert run("render", name, stdin=conversation.stdout_bytes).stdout_bytes == text


@every_format
def test_parse_prompt_gives_what_render_takes(name: str) -> None:
    text = chatcodec.get_format(name).render(MESSAGES[:1], tools=TOOLS, add_generation_prompt=True).text
    conversation = run("parse-prompt", name, stdin=text.encode())
    assert conversation.exit_code == 0
    assert json.loads(conversation.stdout)["options"]["add_generation_prompt"] is True
    assert run("render", name, stdin=conversation.stdout_bytes).stdout_bytes == text.encode()


# ---------------------------------------------------------------------------------------------------------------- parse


@every_format
def test_parse_prints_the_reply(name: str, tools_file: str, tmp_path: Path) -> None:
    prompt, completion = sampled(name)
    path = tmp_path / "prompt.txt"
    path.write_bytes(prompt.encode())
    result = run("parse", name, "--tools", tools_file, "--prompt", str(path), "--finish-reason", "tool_calls", stdin=completion.encode())
    assert result.exit_code == 0
    reply = chatcodec.get_format(name).parse(completion, tools=TOOLS, prompt=prompt, finish_reason="tool_calls")
    shown = json.loads(result.stdout)
    assert shown["message"] == reply.message.model_dump()
    assert [(each["kind"], each["text"], tuple(each["span"]), each["call"]) for each in shown["segments"]] == [
        (s.kind, s.text, s.span, s.call) for s in reply.segments
    ]
    assert shown["diagnostics"] == []
    assert shown["partial"] is None
    assert shown["finish_reason"] == "tool_calls"


@every_format
def test_a_cut_call_is_printed_and_exits_1(name: str, tools_file: str) -> None:
    _, completion = sampled(name)
    cut = completion[: completion.index("東京")]
    result = run("parse", name, "--tools", tools_file, "--finish-reason", "length", stdin=cut.encode())
    assert result.exit_code == 1
    shown = json.loads(result.stdout)
    assert "truncated" in [each["code"] for each in shown["diagnostics"]]
    assert shown["partial"]["name"] == "weather"
    assert shown["finish_reason"] == "length"


@every_format
def test_strict_refuses_with_a_caret(name: str, tools_file: str) -> None:
    _, completion = sampled(name)
    cut = completion[: completion.index("東京")]
    result = run("parse", name, "--tools", tools_file, "--policy", "strict", "--finish-reason", "length", stdin=cut.encode())
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"chatcodec: {name}: ")
    assert result.stderr.endswith("^\n")


@every_format
def test_stream_prints_the_events(name: str, tools_file: str) -> None:
    _, completion = sampled(name)
    events = [
        json.loads(line) for line in run("parse", name, "--stream", "--tools", tools_file, stdin=completion.encode()).stdout.splitlines()
    ]
    assert {"event": "tool_call_start", "index": 0, "name": "weather"} in events
    assert {"event": "tool_call_end", "index": 0} in events
    arguments = "".join(each["text"] for each in events if each["event"] == "arguments_delta")
    assert json.loads(arguments) == CALL["function"]["arguments"]  # type: ignore[index]
    assert "".join(each["text"] for each in events if each["event"] == "reasoning_delta") == "I must look."


@every_format
def test_stream_of_a_cut_call_exits_1(name: str, tools_file: str) -> None:
    _, completion = sampled(name)
    cut = completion[: completion.index("東京")]
    result = run("parse", name, "--stream", "--tools", tools_file, "--finish-reason", "length", stdin=cut.encode())
    assert result.exit_code == 1
    assert "truncated" in [json.loads(line).get("code") for line in result.stdout.splitlines()]


@every_format
def test_stream_shows_events_while_the_pipe_is_open(name: str) -> None:
    _, completion = sampled(name)
    with spawn("parse", name, "--stream") as process:
        assert process.stdin and process.stdout
        data = completion.encode()
        middle = data.index("東京".encode()) + 1  # within a character
        process.stdin.write(data[:middle])
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["event"]
        assert process.poll() is None
        process.stdin.write(data[middle:])
        process.stdin.close()
        rest = process.stdout.read().decode()
        assert "\N{REPLACEMENT CHARACTER}" not in rest
        assert "東京" in rest
    assert process.returncode == 0


# --------------------------------------------------------------------------------------------------------------- pretty


@every_format
@pytest.mark.parametrize("command", ["render", "parse", "parse-prompt", "stream"])
def test_pretty_lets_no_control_character_through(name: str, command: str) -> None:
    evil = "\x1b]0;title\x07 \x1b[31m\x9b31m \x00 \r \u202e \x7f tab\there end"
    messages = [{"role": "user", "content": evil}, {"role": "assistant", "content": evil, "reasoning_content": evil}]
    rendered = chatcodec.get_format(name).render(messages)
    span = rendered.sampled_spans[-1]
    assert span is not None
    given = {"render": json.dumps(messages), "parse-prompt": rendered.text}.get(command, rendered.text[slice(*span)])
    arguments = ["parse", name, "--stream"] if command == "stream" else [command, name]
    result = run(*arguments, "--pretty", stdin=given.encode())
    assert result.exit_code == 0, result.output
    assert SGR.search(result.stdout)
    shown = SGR.sub("", result.stdout)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
    assert r"\x1b]0;title\x07" in shown or r"\u001b]0;title\u0007" in shown
    assert r"\x9b" in shown or r"\u009b" in shown


@every_format
def test_pretty_shows_the_text_and_a_legend(name: str) -> None:
    given = json.dumps({"messages": MESSAGES, "tools": TOOLS})
    text = chatcodec.get_format(name).render(MESSAGES, tools=TOOLS).text
    shown = SGR.sub("", run("render", name, "--pretty", stdin=given).stdout)
    legend, _, rest = shown.partition("\n")
    assert {"control", "reasoning"} <= set(legend.split())
    assert rest.startswith(text.replace("\r", r"\r").removesuffix("\n") + "\n")
    assert SGR.sub("", run("parse-prompt", name, "--pretty", stdin=text.encode()).stdout).startswith(shown.split("loss:")[0])


@every_format
def test_pretty_shows_a_caret_under_each_diagnostic(name: str, tools_file: str) -> None:
    _, completion = sampled(name)
    cut = completion[: completion.index("東京")]
    result = run("parse", name, "--pretty", "--tools", tools_file, "--finish-reason", "length", stdin=cut.encode())
    assert result.exit_code == 1
    shown = SGR.sub("", result.stdout).splitlines()
    assert {"control", "reasoning"} <= set(shown[0].split())
    at = next(index for index, line in enumerate(shown) if line.startswith("error: truncated"))
    found = re.fullmatch(r"error: truncated( \(.*\))? at (\d+):(\d+)", shown[at])
    assert found
    assert shown[at + 1].strip() in cut.split("\n")[int(found[2]) - 1]
    assert re.fullmatch(r" +\^", shown[at + 2])


def test_the_caret_counts_cells() -> None:
    from chatcodec.terminal import show_difference

    *_, source, caret = SGR.sub("", show_difference("a東京x", "a東京y")).splitlines()
    assert (source, caret) == ("  a東京x", "       ^")


# ------------------------------------------------------------------------------------------------------------ bad input

DEEP = "[" * 100_000
BAD_JSON = [
    (b'[{"role": "user",\n  "content": }]', "invalid JSON at line 2, column 14"),
    (b"", "invalid JSON at line 1, column 1"),
    (b'[{"role": "us\xff"}]', "invalid UTF-8 at byte 13"),
    ("[" + DEEP, "too deep"),
    ("[" + "9" * 5000 + "]", "integer"),
    (b"3", "not a number"),
    (b'"x"', "not a string"),
    (b"null", "not null"),
    (b"{}", "no messages"),
    (b'{"message": []}', "did you mean 'messages'?"),
    (b'{"messages": [], "tool": []}', "did you mean 'tools'?"),
    (b'{"messages": {}}', "messages must be a list, not an object"),
    (b'{"messages": [], "tools": {}}', "tools must be a list"),
    (b'{"messages": [], "tools": [true]}', "tools[0] must be an object, not a boolean"),
    (b'{"messages": [], "options": []}', "options must be an object"),
    (b"[3]", "messages[0]"),
    (b'[{"content": "x"}]', "messages[0].role"),
    (b'{"messages": [{"role": "user", "content": "x"}], "options": {"add_generation_promt": true}}', "'add_generation_prompt'"),
    (b'{"messages": [{"role": "user", "content": "x"}], "options": {"tools": []}}', "unknown option 'tools'"),
    (b'{"messages": [{"role": "user", "content": "x"}], "options": {"self": 1}}', "unknown option 'self'"),
]


@every_format
@pytest.mark.parametrize(("given", "said"), BAD_JSON, ids=[said for _, said in BAD_JSON])
def test_bad_conversations(name: str, given: bytes | str, said: str) -> None:
    assert said in complaint(run("render", name, stdin=given))


@every_format
def test_deep_json_that_python_can_read(name: str) -> None:
    for deep in ('{"a": ' * 800 + "1" + "}" * 800, "[" * 800 + "]" * 800):
        tool = '{"type": "function", "function": {"name": "f", "parameters": ' + deep + "}}"
        call = '{"id": "c0", "function": {"name": "f", "arguments": {"x": ' + deep + "}}}"
        turns = '[{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [' + call + "]}]"
        given = '{"tools": [' + tool + '], "messages": ' + turns + "}"
        result = run("render", name, stdin=given)
        assert result.exit_code == 0 or complaint(result)


@every_format
def test_bad_files(name: str, tmp_path: Path) -> None:
    completion = tmp_path / "completion.txt"
    completion.write_bytes("abc Ł".encode()[:-1])
    for arguments, said in (
        (["render", name, str(tmp_path)], f"{str(tmp_path)!r}: Is a directory"),
        (["parse", name, str(tmp_path / "no\nfile")], "No such file"),
        (["parse", name, "--stream", str(tmp_path / "none")], "No such file"),
        (["parse", name, "--tools", str(tmp_path)], "Is a directory"),
        (["parse", name, "--prompt", str(tmp_path / "none")], "No such file"),
        (["parse", name, str(completion)], "invalid UTF-8 at byte 4: unexpected end of data"),
        (["parse-prompt", name, str(completion)], "invalid UTF-8 at byte 4"),
        (["parse", name, "--tools", "-"], "only one of FILE, --tools and --prompt"),
        (["parse", name, "--option", "x"], "NAME=VALUE"),
        (["parse", name, "--option", "prompt=x"], "unknown option 'prompt'"),
        (["parse", name, "--option", "add_generation_promt=true"], "add_generation_promt"),
    ):
        assert said in complaint(run(*arguments))


def test_bad_tools(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    for given, said in (("{}", "must be a list, not an object"), ("[1]", "tools[0] must be an object"), ("[", "invalid JSON at line 1")):
        path.write_text(given)
        for name in chatcodec.list_formats():
            assert said in complaint(run("parse", name, "--tools", str(path)))


@every_format
def test_a_prompt_of_no_format(name: str) -> None:
    result = run("parse-prompt", name, stdin="\x1b[31m no prompt at all")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"chatcodec: {name}: ")
    assert result.stderr.endswith("^\n")
    assert "\x1b" not in result.stderr


@every_format
def test_unknown_formats_are_named_with_the_nearest(name: str) -> None:
    for command in ("render", "parse", "parse-prompt"):
        assert f"did you mean {name!r}?" in complaint(run(command, name[:-1] + "_"))


# ------------------------------------------------------------------------------------------------------ the real process


def outcome(*arguments: str, stdin: bytes = b"", stdout: int | IO[bytes] = subprocess.PIPE) -> tuple[int, bytes, bytes]:
    with spawn(*arguments, stdout=stdout) as process:
        out, err = process.communicate(stdin, timeout=60)
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pars"], "'parse'"),
        (["render"], "FORMAT"),
        (["parse", "x", "--tool", "y"], "--tools"),
        (["parse", "x", "--policy", "lax"], "recover"),
        (["render", "x", "y", "z"], "z"),
    ],
)
def test_usage_errors_are_one_line(arguments: list[str], said: str) -> None:
    code, out, err = outcome(*arguments)
    assert (code, out) == (2, b"")
    assert err.startswith(b"chatcodec: ")
    assert err.count(b"\n") == 1
    assert said in err.decode()


def test_help_has_an_example_for_each_command() -> None:
    for command in ("formats", "render", "parse", "parse-prompt"):
        assert f"Example: chatcodec {command}" in " ".join(run(command, "--help").stdout.split())


@every_format
def test_a_pipe_gets_json_and_exit_codes(name: str) -> None:
    code, out, err = outcome("parse", name, stdin="\r\nž".encode())
    assert json.loads(out)["message"]["role"] == "assistant"
    assert code in (0, 1)
    assert err == b""
    code, out, err = outcome("parse", name, stdin=b"ab\xff")
    assert (code, out) == (2, b"")
    assert err.decode() == "chatcodec: standard input: invalid UTF-8 at byte 2: invalid start byte\n"


@every_format
def test_a_reader_that_goes_away(name: str) -> None:
    with spawn("parse", name, "--stream") as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdout.close()
        _, completion = sampled(name)
        process.stdin.write(completion.encode())
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@every_format
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_seen_enough(name: str, unbuffered: str, tmp_path: Path) -> None:
    path = tmp_path / "messages.json"
    path.write_text(json.dumps([{"role": "user", "content": "x" * 1_000_000}]))
    with spawn("render", name, str(path), unbuffered=unbuffered) as process:
        assert process.stdout and process.stderr
        assert len(process.stdout.read(10)) == 10
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
    with spawn("render", name, str(path), unbuffered=unbuffered) as process:
        assert process.stdout
        assert len(process.stdout.read()) > 1_000_000


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk() -> None:
    with Path("/dev/full").open("wb") as full:
        code, _, err = outcome("formats", stdout=full)
    assert code == 2
    assert err.startswith(b"chatcodec: standard output: ")
    assert err.count(b"\n") == 1


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_an_interrupt_is_silent() -> None:
    name = chatcodec.list_formats()[0]
    with spawn("parse", name, "--stream") as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(sampled(name)[1].encode())
        process.stdin.flush()
        process.stdout.readline()  # now it waits for more
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b""
    assert process.returncode == 130


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_closed_streams(closed: str) -> None:
    command = f'"{sys.executable}" -m chatcodec parse {chatcodec.list_formats()[0]} {closed}'
    done = subprocess.run(["sh", "-c", command], env=environment(), capture_output=True, input=b"", check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(b"chatcodec: standard ")
    assert done.stderr.count(b"\n") == 1


def imported(module: str) -> set[str]:
    program = f"import {module}, sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, check=True).stdout.decode().split())


def test_only_the_command_line_imports_its_libraries() -> None:
    assert not {"typer", "rich"} & imported("chatcodec")
    assert "rich" not in imported("chatcodec.cli")  # a pipe does without
