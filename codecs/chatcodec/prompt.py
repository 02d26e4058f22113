"""Lexemes of a whole prompt to a conversation: the inverse of a chat template.

Rules of this module:

* the grammar is strict, so whatever arrives here is exactly what the template writes; blanks are data;
* ids are not in the text: calls are numbered `call_0`, `call_1`… through the conversation, and results take the ids of the
  calls before them in order, or new ones;
* what a text says beside messages and tools is a *note*, which stands for options, or is read by the format's own module.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from . import calls
from .assembler import Assembler
from .grammar import Guard
from .messages import function_of
from .reply import Ways
from .sink import Handler, Handlers

GENERATION_NOTES = ("generation", "thinking", "no_thinking")  #: rules and aliases of the opening of a turn to come


class Misfit(Exception):
    """A text that the grammar allows but no template writes.  Turned into a ParseError by the format."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position, self.reason = position, reason


@dataclass(slots=True)
class PromptReader:
    """What was read so far of a prompt."""

    ways: Ways
    meanings: Mapping[str, Mapping[str, Any]]  #: the options that notes stand for
    read_tools: Callable[[str], list[dict[str, Any]]] | None = None  #: reads a section of declarations that are no JSON
    failed: bool = False
    spell: Callable[[str], str] | None = None
    document: tuple[Any] | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)  #: what else the text says, by the names of rules and aliases
    options: dict[str, Any] = field(default_factory=dict)  #: what the notes come to
    places: list[tuple[str, str, int]] = field(default_factory=list)  #: each note, its text, and before which message it stands
    result_name: str = ""
    sections: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  #: the tools of each section of declarations
    blocks: list[tuple[int, int]] = field(default_factory=list)  #: which messages each block of tool results holds
    parts: list[Any] = field(default_factory=list)  #: of the open message: text and media
    untagged: set[int] = field(default_factory=set)  #: assistant turns without any sign of reasoning
    option: str = ""
    turn: Assembler | None = None
    pending: deque[str] = field(default_factory=deque)  #: ids of calls without a result
    ids: int = 0
    block: int = 0

    def assistant(self) -> Assembler:
        """The open assistant turn."""
        if self.turn is None:
            functions = {str(function_of(tool).get("name")): function_of(tool) for tool in self.tools}
            self.turn = Assembler(self.ways, functions or None, None, policy="raw")
            self.turn.exact = True
        return self.turn

    def content(self, empty: str | None) -> Any:
        """The open message's content: text, or parts where there are media."""
        parts, self.parts = self.parts, []
        if all(isinstance(part, str) for part in parts):
            return "".join(parts) or empty
        if len(parts) == 1 and parts[0] == {"type": "text", "text": parts[0].get("text")}:
            return parts[0]["text"]
        return [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]

    def check(self, holds: bool, reason: str) -> None:
        """Refuse a text that no template writes."""
        if not holds:
            raise Misfit(0, reason)

    def new_id(self) -> str:
        """An id that no other call has."""
        self.ids += 1
        return f"call_{self.ids - 1}"

    def json(self, text: str) -> Any:
        """JSON that stands in an option's place."""
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Misfit(0, f"an option is no JSON ({error})") from None

    def number(self, text: str, what: str) -> int | float:
        """A number that stands in an option's place, spelt as templates write it."""
        for kind in (int, float):
            try:
                value: int | float = kind(text)
            except ValueError:
                continue
            if str(value) == text:
                return value
        raise Misfit(0, f"{text!r} is no {what}")

    # what the machine asks of any sink; a strict grammar asks little

    def stray(self, start: int, end: int) -> None: ...
    def cut_marker(self, start: int, end: int) -> None: ...
    def ended(self) -> None: ...

    def shorten(self, text: str, start: int) -> None: ...

    def json_so_far(self) -> str:
        return ""

    def known_names(self, guard: Guard, name: str) -> frozenset[str]:
        return frozenset()

    def name_so_far(self, guard: Guard) -> str:
        return ""

    def trial(self) -> None:
        return None

    def adopt(self, trial: Any) -> bool:
        return False


def _text(reader: PromptReader, text: str, start: int, end: int) -> None:
    reader.parts.append(text)


def _option(reader: PromptReader, text: str, start: int, end: int) -> None:
    reader.option += text


def _tool_json(reader: PromptReader, text: str, start: int, end: int) -> None:
    try:
        tool = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Misfit(start, f"a tool declaration is no JSON ({error})") from None
    declared = tool if isinstance(tool, list) else [tool]
    if not all(isinstance(one, dict) for one in declared):
        raise Misfit(start, "a tool declaration is no JSON object")
    reader.tools += declared


def _end_message(role: str, empty: str | None) -> Handler:
    def end(reader: PromptReader, _: str, start: int, end: int) -> None:
        reader.messages.append({"role": role, "content": reader.content(empty)})

    return end


def _end_result(reader: PromptReader, _: str, start: int, end: int) -> None:
    call_id = reader.pending.popleft() if reader.pending else reader.new_id()
    name, reader.result_name = reader.result_name, ""
    reader.messages.append({"role": "tool", "tool_call_id": call_id} | ({"name": name} if name else {}) | {"content": reader.content("")})
    reader.block += 1


def _end_text_block(reader: PromptReader, _: str, start: int, end: int) -> None:
    """A text with a frame of its own, even an empty one, is a part of the open message."""
    parts, written = reader.parts, list[str]()
    while parts and isinstance(parts[-1], str):
        written.append(parts.pop())
    parts.append({"type": "text", "text": "".join(reversed(written))})


def _result_name(reader: PromptReader, text: str, start: int, end: int) -> None:
    reader.result_name += text


def _end_results(reader: PromptReader, _: str, start: int, end: int) -> None:
    reader.blocks.append((len(reader.messages) - reader.block, len(reader.messages)))
    reader.block = 0


def _end_assistant(reader: PromptReader, _: str, start: int, end: int) -> None:
    turn = reader.assistant()
    message: dict[str, Any] = {"role": "assistant", "content": reader.content(None)}
    reasoning = "".join(turn.reasoning) if turn.reasoning is not None else None
    if reasoning or (reasoning == "" and reader.ways.empty_reasoning):
        message["reasoning_content"] = reasoning
    if turn.reasoning is None:
        reader.untagged.add(len(reader.messages))
    reader.pending.clear()
    if turn.calls:
        message["tool_calls"] = []
        for name, arguments in turn.calls:
            reader.pending.append(reader.new_id())
            message["tool_calls"].append({"id": reader.pending[-1], "type": "function", "function": {"name": name, "arguments": arguments}})
    reader.messages.append(message)
    reader.turn = None


def _media(kind: str) -> Handler:
    def end(reader: PromptReader, _: str, start: int, end: int) -> None:
        reader.parts.append({"type": kind})

    return end


def _note(reader: PromptReader, name: str, start: int, end: int) -> None:
    reader.notes[name] = reader.option
    reader.options |= deepcopy(reader.meanings.get(name, {}))
    reader.places.append((name, reader.option, len(reader.messages)))
    reader.option = ""


def _generation(reader: PromptReader, name: str, start: int, end: int) -> None:
    reader.options["add_generation_prompt"] = True
    _note(reader, name, start, end)


def _declared(reader: PromptReader, name: str, start: int, end: int) -> None:
    """A section of tools, which type the arguments of the turns to come."""
    if reader.read_tools is not None:
        try:
            reader.sections[name] = reader.read_tools(reader.option)
        except ValueError as error:
            raise Misfit(start, f"tools that cannot be read: {error}") from None
        reader.tools += reader.sections[name]
    _note(reader, name, start, end)


def _turn(handler: Any) -> Handler:
    def delegate(reader: PromptReader, text: Any, start: int, end: int) -> None:
        handler(reader.assistant(), text, start, end)

    return delegate


def handlers(notes: Iterable[str]) -> Handlers:
    """The functions that read a prompt; `notes` are the rules and aliases that say something of the options."""
    return Handlers(
        runs={
            "SYSTEM_TEXT": _text,
            "USER_TEXT": _text,
            "TOOL_RESULT": _text,
            "CONTENT": _text,
            "TOOL_JSON": _tool_json,
            "OPTION_TEXT": _option,
            "TOOLS_TEXT": _option,
            "RESULT_NAME": _result_name,
            "CALL_JSON": _turn(calls.add_call_json),
            "REASONING": _turn(Assembler.add_reasoning),
            "CALL_NAME": _turn(calls.add_call_name),
            "ARG_NAME": _turn(calls.add_arg_name),
            "ARG_VALUE": _turn(calls.add_arg_value),
        },
        ends={
            "instructions": _end_message("system", ""),
            "user": _end_message("user", ""),
            "result": _end_result,
            "results": _end_results,
            "assistant": _end_assistant,
            "declared": _declared,
            "builtin": _declared,
            "user_image": _end_message("user", ""),
            "user_audio": _end_message("user", ""),
            "system_image": _end_message("system", ""),
            "system_audio": _end_message("system", ""),
            "past_text": _end_text_block,
            "json_call": _turn(calls.end_json_call),
            "image": _media("image"),
            "audio": _media("audio"),
            "video": _media("video"),
            "reasoning": _turn(Assembler.end_reasoning),
            "past_reasoning": _turn(Assembler.end_reasoning),
            "argument": _turn(calls.end_argument),
            "call": _turn(calls.end_call),
            **{note: _generation if note in GENERATION_NOTES else _note for note in notes},
        },
        cuts={},
        broken=_note,
        diagnose=_note,
    )
