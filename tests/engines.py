"""An engine in a process of its own, for the tests, and what its clients are to be told.

Rules of this module:

* an engine is where `CHATCODEC_ENGINES` points (`prepare_engines.sh` makes such a directory), or it is installed;
* `engine_process.py` drives the engine; jobs and their results are lines of JSON on the pipes of its process.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chatcodec

DIRECTORY = os.environ.get("CHATCODEC_ENGINES", "")


def missing(engine: str) -> str | None:
    """Why an engine cannot be driven here, None if it can."""
    if (Path(DIRECTORY) / engine).is_dir() if DIRECTORY else importlib.util.find_spec(engine):
        return None
    return f"{engine} is not here: prepare it with tests/prepare_engines.sh DIR and set CHATCODEC_ENGINES=DIR"


class Engine:
    """An engine's process."""

    def __init__(self, engine: str) -> None:
        self.name = engine
        path = [str(Path(chatcodec.__file__).parents[1]), DIRECTORY, os.environ.get("PYTHONPATH", "")]
        # a pipe that nobody reads would fill
        self._log = tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("engine_process.py")), engine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            encoding="utf-8",
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path)), "PYTHONIOENCODING": "utf-8"},
        )
        self.ready: dict[str, Any] = self._answer()

    def run(self, **job: Any) -> dict[str, Any]:
        """Do a job; gives its result."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def tools(self, tools: Any) -> list[dict[str, Any]] | None:
        """Tools in a shape that the engine takes."""
        if self.name != "sglang" or not tools:
            return list(tools) if tools else None
        return [tool if "function" in tool else {"type": "function", "function": tool} for tool in tools]

    def seen(self, reply: chatcodec.Reply, tools: Any) -> chatcodec.Reply:
        """A reply as the engine's clients see it: SGLang leaves out the calls of unknown tools."""
        if self.name == "sglang":
            names = {tool.get("function", tool)["name"] for tool in tools or ()}
            reply.message.tool_calls = [call for call in reply.message.tool_calls if call.name in names]
        return reply

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # an engine may print
                answer: dict[str, Any] = json.loads(line)
                return answer
        self._log.seek(0)
        raise AssertionError(f"the engine's process ended: {self._log.read()[-2000:]}")

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
        self._log.close()


# ---------------------------------------------------------------------------------------------- what is written and told

BOTH = ["tools", "reasoning"]
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    },
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}}
TURN = {"role": "assistant", "reasoning_content": "I look.", "content": "Let me see.", "tool_calls": [CALL]}
PLAIN = {"role": "assistant", "reasoning_content": "I look.", "content": "One two three."}


def written(name: str, turn: dict[str, Any]) -> tuple[str, str]:
    """A prompt, and what a model of the format writes for a turn."""
    fmt = chatcodec.get_format(name)
    rendered = fmt.render([{"role": "user", "content": "Rain?"}, turn], tools=[TOOL])
    span = rendered.sampled_spans[-1]
    assert span is not None
    return rendered.text[: span[0]], rendered.text[slice(*span)]


def finished(calls: Sequence[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Names and arguments of the calls that a client may run: those whose arguments are a JSON object."""
    made = []
    for call in calls:
        assert call["id"], call
        try:
            arguments = json.loads(call["arguments"])
        except ValueError:
            continue
        assert isinstance(arguments, dict)
        made.append((call["name"], arguments))
    return made


def calls_of(reply: chatcodec.Reply) -> list[tuple[str, Any]]:
    """The same of a reply."""
    return [(call.name, json.loads(json.dumps(call.arguments))) for call in reply.message.tool_calls]


def content_of(reply: chatcodec.Reply) -> str:
    """The content of a reply as one text."""
    content = reply.message.content
    return content if isinstance(content, str) else "".join(part["text"] for part in content or ())


def check_both(result: dict[str, Any], reply: chatcodec.Reply) -> None:
    """With both parsers a client is told what the codec reads, in deltas and at once."""
    assert "error" not in result, result
    for told in (result["streamed"], result["whole"]):
        assert told["reasoning"] == (reply.message.reasoning_content or "")
        assert finished(told["calls"]) == calls_of(reply)
    content = content_of(reply)
    assert result["streamed"]["content"] == content
    assert result["whole"]["content"] == content or (not content.strip() and not result["whole"]["content"].strip())


def check_alone(result: dict[str, Any], reply: chatcodec.Reply) -> None:
    """With one parser, or without calls, nothing that was written is gone, and deltas tell the same as the whole."""
    assert "error" not in result, result
    streamed, whole = result["streamed"], result["whole"]
    assert finished(streamed["calls"]) == finished(whole["calls"])
    assert streamed["content"] == whole["content"] or (not streamed["content"].strip() and not whole["content"].strip())
    assert streamed["reasoning"] == whole["reasoning"]
    everything = whole["reasoning"] + whole["content"]
    assert (reply.message.reasoning_content or "").strip() in everything
    assert content_of(reply).strip() in everything
