"""The texts and conversations that are measured, the same for every format.

Rules of this module:

* a text that a model would have written is made by the format's own renderer (`completion`), so a format that is
  registered is a format that is measured;
* nothing is random: two runs measure the same texts.
"""

import argparse
import inspect
import typing
from typing import Any, NamedTuple

from chatcodec import Format

Message = dict[str, Any]
Tools = list[dict[str, Any]]

_PROSE = (
    "The report covers three regions, and in two of them (north & west) demand rose by more than 4 % against last year. "
    'Nobody expected that; "a quiet quarter" was the forecast.\nStill, margins fell: costs < revenue, but only just. '
)
_CODE = (
    "def total(rows: list[Row], limit: int = 10) -> dict[str, float]:\n"
    '    """Sum what was sold, by "region"."""\n'
    "    return {row.region: row.price * row.count for row in rows if row.count < limit and row.tag != '<none>'}\n\n"
)


def prose(size: int) -> str:
    """Plain English of that many characters, without blanks at its ends."""
    return (_PROSE * (size // len(_PROSE) + 1))[: size - 1] + "."


def code(size: int) -> str:
    """Python source of that many characters."""
    return (_CODE * (size // len(_CODE) + 1))[: size - 1] + "#"


def source(size: int) -> str:
    """The beginning of a real Python module, of the standard library, of that many characters."""
    return (inspect.getsource(typing) + inspect.getsource(argparse))[:size].rstrip()


def deltas(text: str, size: int = 4) -> list[str]:
    """The text in pieces of about a token."""
    return [text[start : start + size] for start in range(0, len(text), size)]


def _tool(name: str, description: str, **types: str) -> dict[str, Any]:
    properties = {key: {"type": kind, "description": f"The {key} to use."} for key, kind in types.items()}
    parameters = {"type": "object", "properties": properties, "required": list(types)[:1]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _call(name: str, number: int = 1, /, **arguments: Any) -> dict[str, Any]:
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def _assistant(reasoning: str, content: str, *calls: dict[str, Any]) -> Message:
    turn: Message = {"role": "assistant", "reasoning_content": reasoning, "content": content}
    return turn | {"tool_calls": list(calls)} if calls else turn


# ------------------------------------------------------------------------------------------------------- one completion

TOOLS: Tools = [
    _tool("search_files", "Search the workspace.", query="string", limit="integer", recursive="boolean", paths="array"),
    _tool("write_file", "Write a file.", path="string", text="string"),
    _tool("run_query", "Run SQL against the warehouse.", sql="string", parameters="object", timeout="number", explain="boolean"),
    _tool("get_weather", "Look up the weather.", city="string", days="integer"),
]

SHORT = "parse 350 characters, 1 call"
MEDIUM = "parse 4 KB, 3 calls"
ARGUMENT = "parse a 100 KB argument"
DENSE = "parse a 100 KB argument, dense in <"
CONTENT = "parse 8 KB of content"

TURNS: dict[str, Message] = {
    SHORT: _assistant(
        "The user wants last year's figures, so look through the reports first; the drafts don't count here.",
        "I'll look that up in the reports.",
        _call("search_files", query="annual report 2025", limit=20, recursive=True),
    ),
    MEDIUM: _assistant(
        prose(900),
        prose(300),
        _call("search_files", 1, query=prose(150), limit=50, recursive=False, paths=["reports/2024", "reports/2025", "drafts"]),
        _call("write_file", 2, path="src/report/totals.py", text=code(1100)),
        _call("run_query", 3, sql=code(500), parameters={"region": "north", "ids": [1, 2, 3], "exact": True}, timeout=2.5, explain=True),
    ),
    ARGUMENT: _assistant("Write it.", "Here it is.", _call("write_file", path="src/report/totals.py", text=source(100_000))),
    DENSE: _assistant("Write it.", "Here it is.", _call("write_file", path="src/report/totals.py", text=code(100_000))),
    CONTENT: _assistant("Just answer.", prose(8_000)),
}


def completion(fmt: Format, turn: Message, tools: Tools | None = None) -> str:
    """What a model writes for this turn: the sampled stretch of its rendered text."""
    rendered = fmt.render([{"role": "user", "content": "Go on."}, turn], tools=tools)
    span = rendered.sampled_spans[-1]
    if span is None:
        raise AssertionError(f"{fmt.name} renders this turn otherwise than a model writes it")
    return rendered.text[slice(*span)]


def content_of(size: int) -> Message:
    """A turn whose content has that many characters."""
    return _assistant("Just answer.", prose(size))


def argument_of(size: int) -> Message:
    """A turn with one call whose one long argument has that many characters."""
    return _assistant("Write it.", "", _call("write_file", path="a.py", text=code(size)))


def call_of(arguments: dict[str, Any]) -> Message:
    """A turn with one call of these arguments, all of them strings."""
    return _assistant("Write it.", "", {"id": "call_1", "type": "function", "function": {"name": "write_file", "arguments": arguments}})


# --------------------------------------------------------------------------------------------------------- conversations

_NOUNS = ("invoice", "customer", "ticket", "shipment")
LONG_TOOLS: Tools = [
    _tool(f"{verb}_{noun}", f"{verb.title()} a {noun} of the current account; {_PROSE[:110]}", id="string", limit="integer", full="boolean")
    for verb in ("get", "list", "create", "update", "delete")
    for noun in _NOUNS
]


def long_conversation(turns: int = 200) -> list[Message]:
    """A system message and that many turns: questions, calls, results and answers."""
    messages: list[Message] = [{"role": "system", "content": prose(400)}]
    for number in range(turns // 4):
        noun, name = _NOUNS[number % 4], LONG_TOOLS[number % 20]["function"]["name"]
        arguments = {
            "id": f"{noun}-{number}",
            "limit": number,
            "full": number % 2 == 0,
            "tags": ["a", noun],
            "range": {"from": 1.5, "to": None},
        }
        messages += [
            {"role": "user", "content": f"Question {number}: {prose(160)}"},
            _assistant(prose(200), "Let me see.", _call(name, number, **arguments)),
            {"role": "tool", "tool_call_id": f"call_{number}", "name": name, "content": f'{{"{noun}": {number}, "note": "é <ok>"}}'},
            _assistant(prose(120), f"Answer {number}: {prose(240)}"),
        ]
    return messages


def small_conversations(count: int = 1000) -> list[tuple[list[Message], Tools | None]]:
    """Conversations of two to four messages, every other one with a tool, a call and its result."""
    conversations: list[tuple[list[Message], Tools | None]] = []
    for number in range(count):
        question = {"role": "user", "content": f"Question {number}: what about {_NOUNS[number % 4]} {number}?"}
        if number % 2:
            call = _call("get_weather", number, city=f"City {number}", days=number % 7)
            result = {"role": "tool", "tool_call_id": f"call_{number}", "name": "get_weather", "content": "18 degrees"}
            conversations.append(([question, _assistant("Look it up.", "", call), result], [TOOLS[3]]))
        else:
            conversations.append(([{"role": "system", "content": "Be brief."}, question], None))
    return conversations


# ---------------------------------------------------------------------------------------------------- pieces of a format


class Pieces(NamedTuple):
    """What a format's completions are made of, read off its own rendering."""

    start: str  #: all that stands before the content
    opener: str  #: of a call, up to its name
    head: str  #: of a call, up to its first value
    closer: str  #: of a value
    ending: str  #: from a call's last value to the end of the text
    stop: str  #: from the end of the last call to the end of the text


def pieces(fmt: Format) -> Pieces:
    """Take a format apart with words that stand in no marker."""
    plain = completion(fmt, _assistant("zqr", "zqc"))
    calls = completion(fmt, _assistant("zqr", "", _call("zqn", 1, zqa="zqv", zqb="zqw"), _call("zqm", 2, zqa="zqx")))
    between, ending = calls[_after(calls, "zqw") : calls.index("zqm")], calls[_after(calls, "zqx") :]
    closers = _shared(between, ending)
    opener = between.removeprefix(closers)
    head = opener + calls[calls.index("zqn") : calls.index("zqv")]
    value_end = _shared(calls[_after(calls, "zqv") : calls.index("zqb")], ending)
    return Pieces(plain[: plain.index("zqc")], opener, head, value_end, ending, ending.removeprefix(closers))


def _after(text: str, word: str) -> int:
    return text.index(word) + len(word)


def _shared(one: str, other: str) -> str:
    """What both texts begin with, up to the end of a marker where there is one."""
    pairs = enumerate(zip(one, other, strict=False))
    common = one[: next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))]
    return common[: common.rfind(">") + 1] or common
