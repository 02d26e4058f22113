"""Hand-written scanners: the limit that a parser in Python can be measured against.

Each is the shortest way from a *well-formed* completion, as its format's renderer writes it for a message with reasoning, to
the same message, with `str.find` and slices: no diagnostics, no spans, no tolerance, no stream.  So that the message is the
same, arguments are typed by the library's own `values`, for every JSON Schema, and the message is put together by its own
constructor: what is compared is the way from text to pieces.  A format without a scanner has none to be measured against.
"""

import json
from collections.abc import Callable
from typing import Any

from chatcodec import Message
from chatcodec.messages import assistant_message
from chatcodec.values import NO_SIGNATURE, Signature, read_value, signature_of

_DECODE = json.JSONDecoder().raw_decode
Scanner = Callable[[str, list[dict[str, Any]] | None], Message]


def qwen3_5(text: str, tools: list[dict[str, Any]] | None) -> Message:
    """Reasoning, `</think>`, content, then XML with layout newlines."""
    find, startswith = text.find, text.startswith
    end = find("\n</think>\n\n")
    reasoning = text[:end]
    position = end + 11
    start = find("<tool_call>\n<function=", position)
    if start < 0:
        return assistant_message(text[position:-10], reasoning, ())
    content = text[position : start - 2] if start > position else None
    calls = []
    while start >= 0:
        start += 22
        end = find(">\n", start)
        name = text[start:end]
        types = _signature(name, tools).types
        arguments: dict[str, Any] = {}
        position = end + 2
        while startswith("<parameter=", position):
            start = position + 11
            end = find(">\n", start)
            key = text[start:end]
            start = end + 2
            end = find("\n</parameter>\n", start)
            arguments[key] = read_value(text[start:end], types(key))[0]
            position = end + 14
        calls.append((name, arguments))
        start = find("<tool_call>\n<function=", position)
    return assistant_message(content, reasoning, calls)


def solar_open2(text: str, tools: list[dict[str, Any]] | None) -> Message:
    """Reasoning, `<|think:end|>`, content, then calls between special tokens."""
    find, startswith = text.find, text.startswith
    end = find("<|think:end|>")
    reasoning = text[:end]
    position = end + 13
    start = find("<|tool_call:start|>", position)
    if start < 0:
        return assistant_message(text[position:-10], reasoning, ())
    content = text[position:start] or None
    calls = []
    while start >= 0:
        start += 19
        end = find("\n", start)
        name = text[start:end]
        types = _signature(name, tools).types
        arguments: dict[str, Any] = {}
        position = end + 1
        while startswith("<|tool_arg:start|>", position):
            start = position + 18
            end = find("<|tool_arg:value|>", start)
            key = text[start:end]
            start = end + 18
            end = find("<|tool_arg:end|>\n", start)
            arguments[key] = read_value(text[start:end], types(key))[0]
            position = end + 17
        calls.append((name, arguments))
        start = find("<|tool_call:start|>", position)
    return assistant_message(content, reasoning, calls)


def inkling(text: str, tools: list[dict[str, Any]] | None) -> Message:
    """Blocks that a role token separates, each a kind of its own, with JSON for a call."""
    find, startswith = text.find, text.startswith
    content: str | None = None
    reasoning = None
    calls = []
    position = 0
    while True:
        if startswith("<|content_thinking|>", position):
            end = find("<|end_message|>", position)
            reasoning = text[position + 20 : end]
        elif startswith("<|content_text|>", position):
            end = find("<|end_message|>", position)
            content = text[position + 16 : end]
        else:
            start = find("<|content_invoke_tool_json|>", position) + 28
            made, end = _DECODE(text, start)
            calls.append((made["name"], made["args"]))
        position = end + 15
        if not startswith("<|message_model|>", position):
            return assistant_message(content, reasoning, calls)
        position += 17


def harmony_xml(text: str, tools: list[dict[str, Any]] | None) -> Message:
    """An analysis, then messages to tools with XML arguments, or a final one."""
    find, startswith = text.find, text.startswith
    content: str | None = None
    calls = []
    end = find("<|end|>")
    reasoning = text[30:end]
    position = end + 7
    while startswith("<|start|>assistant to=", position):
        start = position + 22
        end = find("<|channel|>", start)
        name = text[start:end]
        types = _signature(name, tools).types
        arguments: dict[str, Any] = {}
        position = find("<|message|>", end) + 11
        while startswith('<rfl:parameter name="', position):
            start = position + 21
            end = find('">\n', start)
            key = text[start:end]
            start = end + 3
            end = find("\n</rfl:parameter>", start)
            arguments[key] = read_value(text[start:end], types(key))[0]
            position = end + 17
            if startswith("\n", position):
                position += 1
        position = find(">", position) + 1  # behind `<|end|>`, or `<|call|>` after the last
        calls.append((name, arguments))
    if startswith("<|start|>assistant<|channel|>final<|message|>", position):
        start = position + 45
        content = text[start : find("<|return|>", start)]
    return assistant_message(content, reasoning, calls)


#: The scanner of a format, by its name.
SCANNERS: dict[str, Scanner] = {"qwen3_5": qwen3_5, "solar_open2": solar_open2, "inkling": inkling, "harmony_xml": harmony_xml}


def _signature(name: str, tools: list[dict[str, Any]] | None) -> Signature:
    for tool in tools or ():
        function = tool["function"]
        if function["name"] == name:
            return signature_of(function)
    return NO_SIGNATURE
