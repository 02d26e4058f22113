"""Inkling: typed blocks with role tokens, and JSON bodies for calls.

    <|message_model|><|content_thinking|>I will look.<|end_message|><|message_model|><|content_text|>Looking.<|end_message|>
    <|message_model|>search<|content_invoke_tool_json|>{"name":"search","args":{"query":"tides"}}<|end_message|>
    <|content_model_end_sampling|>

(without the line breaks).  Source: the model's chat template.  JSON is compact with sorted keys, and tool results carry the
name of their tool.  What the text cannot tell apart is decided one way: neighbouring texts and media of one user or system
message and of several such messages come back as the parts of one message; a text "Thinking effort level: …" right before
the first message that is not a system one is the template's own.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import Loss
from ..format import GENERATION_PROMPT, Format, Option, Refuse
from ..grammar import markers
from ..messages import TEXT_PART_TYPES, Tool, function_of
from ..prompt import PromptReader
from ..wire import (
    ARGUMENTS,
    CALL,
    CONTENT,
    CONTROL,
    MEDIA,
    OPTION,
    OUTSIDE,
    REASONING,
    RESULT,
    ROLE,
    SAMPLED,
    SAMPLED_END,
    SYSTEM,
    TOOLS,
    USER,
    Wire,
)

M = markers("inkling")
EFFORTS = {"none": 0.0, "minimal": 0.1, "low": 0.2, "medium": 0.7, "high": 0.9, "max": 0.99}
DEFAULT_EFFORT, HIGHEST_EFFORT = 0.9, 0.99
ROLES = {"user": (M["USER_OPEN"], USER), "assistant": (M["MODEL_OPEN"], CONTENT), "system": (M["SYSTEM_OPEN"], SYSTEM)}
IMAGES = ("image", "input_image", "image_url")
SOUNDS = ("audio", "input_audio", "audio_url")

dumps = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def write(wire: Wire, messages: list[dict[str, Any]], tools: Sequence[Tool], options: Mapping[str, Any], refuse: Refuse) -> None:
    """Render as the template does, in its order, so that of several faults the same one is reported."""
    if tools:
        wire += (OUTSIDE, "", ROLE, M["TOOLS_OPEN"], TOOLS, dumps([_spec(tool) for tool in tools]), CONTROL, M["BLOCK_END"])
    told = False
    for index, message in enumerate(messages):
        role = message["role"]
        if role not in ROLES and role != "tool":
            refuse(f"messages[{index}].role", "unknown_role", f"unknown role {role!r}", f"Unknown message role: {role}")
        if not told and role != "system":
            told = True
            _effort(wire, options["reasoning_effort"], refuse)
        wire += (index, "")
        if role == "assistant":
            _assistant(wire, message, index, refuse)
        elif role == "tool":
            content = message.get("content")
            wire += (ROLE, M["TOOL_OPEN"] + _result_name(message, messages) + M["TEXT_OPEN"])
            wire += (RESULT, content if isinstance(content, str) else "", CONTROL, M["BLOCK_END"])
        else:
            opening, kind = ROLES[role]
            for block in _blocks(message, kind, index, refuse):
                wire += (ROLE, opening, *block)
    if not told:
        _effort(wire, options["reasoning_effort"], refuse)
    if options["add_generation_prompt"]:
        wire += (OUTSIDE, "", ROLE, generation_prompt(options))


def generation_prompt(options: Mapping[str, Any]) -> str:
    """What opens the next assistant turn: the role token of its first block."""
    return M["MODEL_OPEN"]


def _spec(tool: Tool) -> dict[str, Any]:
    function = function_of(tool)
    return {
        "description": function.get("description") or "",
        "name": function["name"],
        "parameters": function.get("parameters") or {},
        "type": tool.get("type") or "function",
    }


def _effort(wire: Wire, effort: Any, refuse: Refuse) -> None:
    if effort is None:
        number = DEFAULT_EFFORT
    elif isinstance(effort, str):
        if effort.strip() not in EFFORTS:
            known = ", ".join(EFFORTS)
            refuse("options.reasoning_effort", "bad_option", f"{effort!r} is none of {known}", f"Unknown reasoning_effort: {effort}")
        number = EFFORTS[effort.strip()]
    else:
        number = float(effort)
    if not 0.0 <= number <= HIGHEST_EFFORT:
        words = "reasoning_effort must be in [0.0, 0.99]"
        refuse("options.reasoning_effort", "bad_option", f"{number} is not between 0 and {HIGHEST_EFFORT}", words)
    wire += (OUTSIDE, "", ROLE, M["EFFORT_OPEN"], OPTION, str(number) if number else "0", CONTROL, M["BLOCK_END"])


def _blocks(message: dict[str, Any], kind: str, index: int, refuse: Refuse) -> list[tuple[str, ...]]:
    """What stands behind the role token of each wire message that a message's content makes."""
    content = message.get("content")
    if isinstance(content, str):
        return [(CONTROL, M["TEXT_OPEN"], kind, content, CONTROL, M["BLOCK_END"])]
    blocks: list[tuple[str, ...]] = []
    for number, part in enumerate(content or ()):
        type_, path = part.get("type", "text"), f"messages[{index}].content[{number}]"
        if type_ in TEXT_PART_TYPES:
            if not isinstance(part.get("text"), str):
                refuse(f"{path}.text", "content_not_string", f"text must be a string, not {type(part.get('text')).__name__}")
            blocks.append((CONTROL, M["TEXT_OPEN"], kind, part["text"], CONTROL, M["BLOCK_END"]))
        elif type_ in IMAGES or type_ in SOUNDS:
            blocks.append((MEDIA, M["IMAGE"] if type_ in IMAGES else M["AUDIO"]))
        else:
            refuse(path, "media_not_supported", f"unknown content part {type_!r}", f"Unsupported content part type: {type_}")
    return blocks


def _assistant(wire: Wire, message: dict[str, Any], index: int, refuse: Refuse) -> None:
    blocks: list[tuple[str, ...]] = []
    if message.get("reasoning_content"):
        blocks.append((CONTROL, M["THINKING_OPEN"], REASONING, message["reasoning_content"], CONTROL, M["BLOCK_END"]))
    blocks += _blocks(message, CONTENT, index, refuse)
    for call in message.get("tool_calls") or ():
        body = dumps({"name": call.name})[:-1] + ',"args":' + dumps(call.arguments) + "}"
        blocks.append((CALL, call.name, CONTROL, M["CALL_OPEN"], ARGUMENTS, body, CONTROL, M["BLOCK_END"]))
    for number, block in enumerate(blocks):
        wire += (ROLE, M["MODEL_OPEN"], *((SAMPLED, "") if not number else ()), *block)
    wire += (CONTROL, M["STOP"])
    if blocks:
        wire += (SAMPLED_END, "")


def _result_name(message: dict[str, Any], messages: list[dict[str, Any]]) -> str:
    """The name of the tool that a result is of: told, or that of the last call with its id, even of a later one."""
    if message.get("name"):
        return str(message["name"])
    wanted, name = message.get("tool_call_id"), ""
    for other in messages if wanted else ():
        for call in (other.get("tool_calls") or ()) if other["role"] == "assistant" else ():
            if call.id == wanted:
                name = call.name
    return name


# ------------------------------------------------------------------------------------------------------ the way back


def read(reader: PromptReader) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The messages and options of a prompt."""
    options: dict[str, Any] = {}
    messages = reader.messages
    first = next((index for index, message in enumerate(messages) if message["role"] != "system"), len(messages))
    places = [place for place in reader.places if place[0] == "effort"]
    own = next((place for place in reversed(places) if place[2] == first), None)
    for place in reversed(places):
        if place is not own:
            messages.insert(
                place[2], {"role": "system", "content": M["EFFORT_OPEN"].removeprefix(M["SYSTEM_OPEN"] + M["TEXT_OPEN"]) + place[1]}
            )
    if own is not None and own[1] != str(DEFAULT_EFFORT):
        reader.check(own[1].replace(".", "").replace("e-", "").isdecimal(), f"{own[1]!r} is no effort")
        options["reasoning_effort"] = float(own[1])
    if "generation" in reader.notes:
        options["add_generation_prompt"] = True
    for message in messages:
        if message["role"] == "tool" and "name" not in message:
            message["tool_call_id"] = reader.new_id()  # of no call, or the text would have its name
    reader.tools = [_tool(reader, spec) for spec in reader.tools]
    return _merged(messages), options


def _tool(reader: PromptReader, spec: dict[str, Any]) -> dict[str, Any]:
    reader.check(spec.keys() == {"description", "name", "parameters", "type"}, "a tool declaration has other keys than it should")
    function = {"name": spec["name"]} | {key: spec[key] for key in ("description", "parameters") if spec[key]}
    return {"type": spec["type"], "function": function}


def _merged(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbouring wire messages of one role as the parts of one message, but for turns and results, which end by themselves."""
    merged: list[dict[str, Any]] = []
    for message in messages:
        last: dict[str, Any] = merged[-1] if merged else {"role": None}
        if message["role"] in ("user", "system") and last["role"] == message["role"]:
            last["content"] = [*_parts(last["content"]), *_parts(message["content"])]
        else:
            merged.append(message)
    return merged


def _parts(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def losses(messages: list[dict[str, Any]], tools: Sequence[Tool], options: Mapping[str, Any]) -> Iterable[Loss]:
    """What the template sorts, leaves out or writes alike."""
    first = None  #: of neighbouring messages that come back as one
    for index, message in enumerate(messages):
        role, path, content = message["role"], f"messages[{index}]", message.get("content")
        if role in ("user", "system") and not content and content != "":
            yield Loss("message_rendered_empty", path, str(index))
            continue
        if first is not None and role in ("user", "system") and messages[first]["role"] == role:
            yield Loss("system_merged", path, str(index))
            yield Loss("system_merged", f"messages[{first}].content", str(first))
        else:
            first = index
        if content is not None and not isinstance(content, str):
            if role == "tool":
                yield Loss("content_dropped", f"{path}.content", str(index))
            elif not content:
                yield Loss("null_content", f"{path}.content", str(index))
            for number, part in enumerate(content):
                if part.get("type", "text") not in TEXT_PART_TYPES and part not in ({"type": "image"}, {"type": "audio"}):
                    yield Loss("media_dropped", f"{path}.content[{number}]", str(index))
        elif content is None and role == "tool":
            yield Loss("null_content", f"{path}.content", str(index))
        if message.get("reasoning_content") == "":
            yield Loss("null_content", f"{path}.reasoning_content", str(index))
        for number, call in enumerate(message.get("tool_calls") or ()):
            where = f"{path}.tool_calls[{number}].function.arguments"
            if list(call.arguments) != sorted(call.arguments):
                yield Loss("key_order_lost", where, str(index))
            for name, value in call.arguments.items():
                if not _sorted(value):
                    yield Loss("key_order_lost", f"{where}.{name}", name)
            if not _finite(call.arguments):
                yield Loss("non_finite_number", where, str(index))
    for index, tool in enumerate(tools):
        function = function_of(tool)
        kept = {
            "type": tool.get("type"),
            "function": {key: function[key] for key in ("name", "description", "parameters") if function.get(key)},
        }
        if tool != kept:
            yield Loss("schema_dropped", f"tools[{index}]", str(index))
        if not _sorted(function.get("parameters")):
            yield Loss("key_order_lost", f"tools[{index}].function.parameters", str(index))


def _sorted(value: Any) -> bool:
    if isinstance(value, Mapping):
        return list(value) == sorted(value) and all(map(_sorted, value.values()))
    return all(map(_sorted, value)) if isinstance(value, (list, tuple)) else True


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, Mapping):
        return all(map(_finite, value.values()))
    return all(map(_finite, value)) if isinstance(value, (list, tuple)) else True


FORMAT = Format(
    name="inkling",
    title="Inkling",
    options={
        "add_generation_prompt": GENERATION_PROMPT,
        "reasoning_effort": Option(
            (str, int, float, type(None)),
            None,
            f"how much to think: a name, or a number from 0 to {HIGHEST_EFFORT}",
            (*EFFORTS, 0, 0.5, None),
        ),
    },
    write=write,
    generation_prompt=generation_prompt,
    starts=((M["MODEL_OPEN"], "completion"),),
    read=read,
    losses=losses,
    parts=frozenset((*TEXT_PART_TYPES, *IMAGES, *SOUNDS)),
    text_blocks=True,
    notes=("generation", "effort"),
    reserved_in_names=(),
    words={
        "arguments_not_json": "tool call arguments must be a parsed object, not a JSON string; canonicalize upstream",
        "arguments_not_mapping": "tool call arguments must be an object",
        "missing_tool_name": "tool call function name must be a string",
    },
)
