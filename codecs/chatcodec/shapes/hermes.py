"""The Hermes shape: plain messages, with calls as JSON in `<tool_call>` tags, results in `<tool_response>` tags, and the
tools as JSON between `<tools>` tags in the system prompt.

Rules of this module:

* what is written is read back exactly; a text that holds one of the tags where a reader looks for it is named as a loss;
* a closing tag inside JSON is written with the escape `\\/`, so that a search for the tag finds the real one;
* read is also what others write: calls as Python literals, several results in one message or in a turn of the user, turns in
  a column of conversations, and any words around the tools.

Source: Nous Research, Hermes-Function-Calling.
"""

import ast
import json
import re
import warnings
from collections.abc import Mapping
from typing import Any

from ..errors import Loss
from .chat import Chat, Columns, Row, RowError, Written, check_tools, column, json_text, read_call, read_document, read_tools
from .repairs import Known, Repair
from .sharegpt import split_turn
from .turns import Numbering, call_json, own_keys, prepare, text_of

CALL, CALL_END = "<tool_call>", "</tool_call>"
RESULT, RESULT_END = "<tool_response>", "</tool_response>"
TOOLS, TOOLS_END = "<tools>", "</tools>"
HEAD = f"# Tools\n\nThese functions can be called; each line between the tags declares one:\n{TOOLS}\n"
TAIL = (
    f"\n{TOOLS_END}\n\nA call is a JSON object with the name of the function and its arguments, in tags of its own:\n"
    f'{CALL}\n{{"name": "NAME", "arguments": {{"PARAMETER": "VALUE"}}}}\n{CALL_END}'
)
_BETWEEN = re.compile(rf"{RESULT_END}\s*{RESULT}")
_BLANKS = re.compile(r"\s*")
_LONGEST_LITERAL = 100_000  #: Python's own parser is no match for hostile text that is longer


def _sealed(text: str, closer: str) -> str:
    """JSON text that does not hold a closing tag."""
    return text.replace(closer, closer.replace("/", "\\/")) if closer in text else text


# ------------------------------------------------------------------------------------------------------------- writing


def write_hermes(chat: Chat, columns: Columns, options: Mapping[str, Any]) -> Written:
    """Plain messages, the first of them with the tools."""
    prepare(chat)
    messages = [_plain(message, index, chat) for index, message in enumerate(chat.messages)]
    first = messages[0] if messages and messages[0]["role"] == "system" else None
    if chat.tools:
        lines = [_sealed(json_text(tool, f"tools[{index}]", chat.losses), TOOLS_END) for index, tool in enumerate(chat.tools)]
        declared = HEAD + "\n".join(lines) + TAIL
        if first is None:
            messages.insert(0, {"role": "system", "content": declared})
        else:
            first["content"] = f"{first['content']}\n\n{declared}"
    elif first is not None and (forged := find_tools(first["content"])) is not None:
        rest = first["content"][: forged[1]] + first["content"][forged[2] :]
        chat.losses.append(Loss("control_token_in_content", "messages[0].content" if rest.strip() else "messages[0]", "0"))
    written: Written = {columns.messages: messages}
    if chat.options:
        written[columns.options] = chat.options
    return written


def _plain(message: Mapping[str, Any], index: int, chat: Chat) -> dict[str, Any]:
    role, text, calls = message["role"], text_of(message, index, chat), message.get("tool_calls", ())
    if role == "user" and _results(text):  # it will be taken for results
        chat.losses.append(Loss("control_token_in_content", f"messages[{index}].role", str(index)))
    elif (role == "assistant" and CALL in text) or (role == "tool" and _BETWEEN.search(text)):
        chat.losses.append(Loss("control_token_in_content", f"messages[{index}].content", str(index)))
    if role == "tool":
        text = f"{RESULT}\n{text}\n{RESULT_END}"
    if calls:
        written = [_sealed(call_json(call, f"messages[{index}].tool_calls[{number}]", chat), CALL_END) for number, call in enumerate(calls)]
        text = "\n".join([*([text] if text else []), *(f"{CALL}\n{call}\n{CALL_END}" for call in written)])
    return {"role": role, "content": text, **own_keys(message)}


# ------------------------------------------------------------------------------------------------------------- reading


def read_hermes(row: Row, columns: Columns) -> Chat:
    """A row with a column of plain messages, or of ShareGPT's turns."""
    turns = columns.messages if row.get(columns.messages) is not None or row.get(columns.conversations) is None else columns.conversations
    chat = Chat([], own_ids=False, used={turns})
    numbering = Numbering()
    for index, given in enumerate(column(row, turns, "bad_message")):
        path = f"{'messages' if turns == columns.messages else 'conversations'}[{index}]"
        if isinstance(given, Mapping) and given.get("tool_call_id") is not None:  # calls in tags have no ids that it could name
            chat.losses.append(Loss("tool_call_id_dropped", f"{path}.tool_call_id"))
            given = {key: value for key, value in given.items() if key != "tool_call_id"}
        role, text, more = split_turn(given, path)
        if text is not None and not isinstance(text, str):
            raise RowError("content_not_string", path, f"the content of a message must be a string, not {type(text).__name__}")
        if index == 0 and role == "system":
            text = _declared(text or "", path, chat)
            if text is None:
                continue
        _add(chat, role, text, more, path, numbering)
    if chat.tools is None:
        read_tools(row, columns.tools, chat)
    elif row.get(columns.tools) in (None, ""):
        chat.used.add(columns.tools)
    else:  # declared twice: in the column too
        declared = Chat([])
        read_tools(row, columns.tools, declared)
        if declared.tools == chat.tools:
            chat.used.add(columns.tools)
    return chat


def _add(chat: Chat, role: str, text: str | None, more: dict[str, Any], path: str, numbering: Numbering) -> None:
    if role == "assistant":
        content, calls = _calls(text or "", path, chat)
        made = numbering.called(calls)
        chat.messages.append({"role": role, "content": content if calls else text, **({"tool_calls": made} if made else {}), **more})
    elif role == "tool" or (role == "user" and _results(text or "")):
        for result in _results(text or "") or [text or ""]:
            chat.messages.append({"role": "tool", "tool_call_id": numbering.answered(), "content": result, **more})
    elif role in ("system", "user"):
        chat.messages.append({"role": role, "content": text, **more})
    else:
        raise RowError("unknown_role", path, f"no message has the role {role!r}; calls stand in {CALL} tags")


def _results(text: str) -> list[str]:
    """The results that a message is made of; none if it holds anything else."""
    text = text.strip()
    if not text.startswith(RESULT) or not text.endswith(RESULT_END) or len(text) < len(RESULT + RESULT_END):
        return []
    return [result.removeprefix("\n").removesuffix("\n") for result in _BETWEEN.split(text[len(RESULT) : -len(RESULT_END)])]


def _calls(text: str, path: str, chat: Chat) -> tuple[str | None, list[dict[str, Any]]]:
    """The content and the calls of an assistant message."""
    start = text.find(CALL)
    if start < 0:
        return text, []
    content = [text[:start].removesuffix("\n")]
    calls: list[dict[str, Any]] = []
    while start >= 0:
        value, end = _call(text, start + len(CALL), path, chat)
        calls.append(read_call(value, f"{path}.tool_calls[{len(calls)}]", _NO_TOOLS, chat, as_text=True))
        calls[-1].pop("id", None)
        start = text.find(CALL, end)
        between = text[end : start if start >= 0 else None]
        if not between.isspace():
            content.append(between)
    return "".join(content) or None, calls


_NO_TOOLS = Known({}, frozenset())
_DECODER = json.JSONDecoder()


def _call(text: str, start: int, path: str, chat: Chat) -> tuple[Any, int]:
    """The call that begins here, and where it ends."""
    start = _BLANKS.match(text, start).end()  # type: ignore[union-attr]
    try:
        value, end = _DECODER.raw_decode(text, start)
        value = read_document(text[start:end], path, chat.losses)
    except (ValueError, RecursionError) as error:
        end = text.find(CALL_END, start)
        if end < 0:
            raise RowError("arguments_not_json", path, f"a {CALL} that does not end") from None
        return _literal(text[start:end], str(error), path, chat), end + len(CALL_END)
    end = _BLANKS.match(text, end).end()  # type: ignore[union-attr]
    if not text.startswith(CALL_END, end):
        raise RowError("arguments_not_json", path, f"a {CALL} with more than one JSON object, or without its end")
    return value, end + len(CALL_END)


def _literal(text: str, error: str, path: str, chat: Chat) -> Any:
    """A call as Python prints it, in single quotes."""
    try:
        if len(text) > _LONGEST_LITERAL:
            raise ValueError
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise RowError("arguments_not_json", path, f"a call that is no JSON: {error}") from None
    chat.repairs.append(Repair("arguments_decoded", path, "a Python literal"))
    return value


def _declared(text: str, path: str, chat: Chat) -> str | None:
    """Take the tools out of the system prompt; gives the prompt that remains, None if there was nothing else in it."""
    start = text.rfind(HEAD)
    if start >= 0 and text.endswith(TAIL) and (start == 0 or text.startswith("\n\n", start - 2)):
        tools = _tools(text[start + len(HEAD) : -len(TAIL)])
        if tools:
            check_tools(tools, path)
            chat.tools = tools
            return text[: start - 2] if start else None
    found = find_tools(text)
    if found is None:
        return text
    tools, start, end = found
    check_tools(tools, path)
    chat.tools = tools
    rest = text[:start] + text[end:]
    return rest if rest.strip() else None


def find_tools(text: str) -> tuple[list[Any], int, int] | None:
    """The first tools between tags, and where they stand; words about the tags are none."""
    start = 0
    while (end := text.find(TOOLS_END, start)) >= 0:
        opener = text.rfind(TOOLS, start, end)
        if opener >= 0:
            tools = _tools(text[opener + len(TOOLS) : end])
            if tools:
                return tools, opener, end + len(TOOLS_END)
        start = end + len(TOOLS_END)
    return None


def _tools(text: str) -> list[Any] | None:
    """Tools as one JSON list, or as JSON objects one after the other."""
    found: list[Any] = []
    position = _BLANKS.match(text).end()  # type: ignore[union-attr]
    try:
        while position < len(text):
            value, position = _DECODER.raw_decode(text, position)
            found += value if isinstance(value, list) else [value]
            position = _BLANKS.match(text, position).end()  # type: ignore[union-attr]
    except (ValueError, RecursionError):
        return None
    return found if found and all(isinstance(tool, Mapping) for tool in found) else None
