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
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import wire as w
from ..errors import Loss
from ..format import Format, Option, Refuse
from ..grammar import markers
from ..inputs import EFFORT_TYPES, Part, leading, named_effort, parts_of
from ..losses import order_losses
from ..messages import Tool, function_of
from ..prompt import PromptReader

M = markers("inkling")
EFFORTS = {"none": 0.0, "minimal": 0.1, "low": 0.2, "medium": 0.7, "high": 0.9, "max": 0.99}
DEFAULT_EFFORT, HIGHEST_EFFORT = 0.9, 0.99
ROLES = {"user": (M["USER_OPEN"], w.USER), "assistant": (M["MODEL_OPEN"], w.CONTENT), "system": (M["SYSTEM_OPEN"], w.SYSTEM)}
PARTS = {
    "text": "text", "input_text": "text",
    "image": "image", "input_image": "image", "image_url": "image",
    "audio": "audio", "input_audio": "audio", "audio_url": "audio",
}  # fmt: skip

dumps = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def write(wire: w.Wire, messages: list[dict[str, Any]], tools: Sequence[Tool], options: Mapping[str, Any], refuse: Refuse) -> None:
    """Render as the template does, in its order, so that of several faults the same one is reported."""
    if tools:
        wire += (w.OUTSIDE, "", w.ROLE, M["TOOLS_OPEN"], w.TOOLS, dumps([_spec(tool) for tool in tools]), w.CONTROL, M["BLOCK_END"])
    told, names = False, None
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
            content, name = message.get("content"), message.get("name")
            if not name:
                names = _called(messages) if names is None else names
                name = names.get(message.get("tool_call_id"), "")
            wire += (w.ROLE, M["TOOL_OPEN"], w.RESULT, name, w.ROLE, M["TEXT_OPEN"])
            wire += (w.RESULT, content if isinstance(content, str) else "", w.CONTROL, M["BLOCK_END"])
        else:
            opening, kind = ROLES[role]
            for block in _blocks(message, kind, index, refuse):
                wire += (w.ROLE, opening, *block)
    if not told:
        _effort(wire, options["reasoning_effort"], refuse)


def _spec(tool: Tool) -> dict[str, Any]:
    """A tool as it is declared."""
    function = function_of(tool)
    return {
        "description": function.get("description") or "",
        "name": function["name"],
        "parameters": function.get("parameters") or {},
        "type": tool.get("type") or "function",
    }


def _effort(wire: w.Wire, effort: Any, refuse: Refuse) -> None:
    if isinstance(effort, str):
        effort = named_effort(effort.strip(), EFFORTS, refuse, f"Unknown reasoning_effort: {effort}")
    number = DEFAULT_EFFORT if effort is None else float(effort)
    if not 0.0 <= number <= HIGHEST_EFFORT:
        words = "reasoning_effort must be in [0.0, 0.99]"
        refuse("options.reasoning_effort", "bad_option", f"{number} is not between 0 and {HIGHEST_EFFORT}", words)
    wire += (w.OUTSIDE, "", w.ROLE, M["EFFORT_OPEN"], w.OPTION, str(number) if number else "0", w.CONTROL, M["BLOCK_END"])


def _kind_of(part: Part) -> str | None:
    return PARTS.get(part.get("type", "text"))


def _blocks(message: dict[str, Any], kind: str, index: int, refuse: Refuse) -> list[tuple[str, ...]]:
    """What stands behind the role token of each wire message that a message's content makes."""
    content = message.get("content")
    if isinstance(content, str):
        return [(w.CONTROL, M["TEXT_OPEN"], kind, content, w.CONTROL, M["BLOCK_END"])]
    blocks: list[tuple[str, ...]] = []
    for what, text, _ in parts_of(content, f"messages[{index}].content", _kind_of, refuse, "Unsupported content part type: {}"):
        if what == "text":
            blocks.append((w.CONTROL, M["TEXT_OPEN"], kind, text, w.CONTROL, M["BLOCK_END"]))
        else:
            blocks.append((w.MEDIA, M[what.upper()]))
    return blocks


def _assistant(wire: w.Wire, message: dict[str, Any], index: int, refuse: Refuse) -> None:
    blocks: list[tuple[str, ...]] = []
    if message.get("reasoning_content"):
        blocks.append((w.CONTROL, M["THINKING_OPEN"], w.REASONING, message["reasoning_content"], w.CONTROL, M["BLOCK_END"]))
    blocks += _blocks(message, w.CONTENT, index, refuse)
    for call in message.get("tool_calls") or ():
        body = dumps({"name": call.name})[:-1] + ',"args":' + dumps(call.arguments) + "}"
        blocks.append((w.CALL, call.name, w.CONTROL, M["CALL_OPEN"], w.ARGUMENTS, body, w.CONTROL, M["BLOCK_END"]))
    opening: tuple[Any, ...] = (w.ROLE, M["MODEL_OPEN"], w.SAMPLED, "")
    for block in blocks:
        wire += opening + block
        opening = (w.ROLE, M["MODEL_OPEN"])
    wire += (w.CONTROL, M["STOP"])
    if blocks:
        wire += (w.SAMPLED_END, "")


def _called(messages: list[dict[str, Any]]) -> dict[str | None, str]:
    """The names of tools by the ids of their calls; a result has that of the last call with its id, even of a later one."""
    turns = [message.get("tool_calls") or () for message in messages if message["role"] == "assistant"]
    return {call.id: call.name for calls in turns for call in calls if call.id}


# ------------------------------------------------------------------------------------------------------ the way back


def read(reader: PromptReader) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The messages and options of a prompt."""
    messages, options = reader.messages, reader.options
    first = leading(messages, ("system",))
    places = [place for place in reader.places if place[0] == "effort"]
    own = next((place for place in reversed(places) if place[2] == first), None)
    for place in reversed(places):
        if place is not own:
            text = M["EFFORT_OPEN"].removeprefix(M["SYSTEM_OPEN"] + M["TEXT_OPEN"]) + place[1]
            messages.insert(place[2], {"role": "system", "content": text})
    if own is not None and own[1] != str(DEFAULT_EFFORT):
        options["reasoning_effort"] = float(reader.number(own[1], "effort"))
    for message in messages:
        if message["role"] == "tool" and "name" not in message:
            message["tool_call_id"] = reader.new_id()  # of no call, or the text would have its name
    for spec in reader.tools:
        reader.check(spec.keys() == {"description", "name", "parameters", "type"}, "a tool declaration has other keys than it should")
    reader.tools = [_tool(spec) for spec in reader.tools]
    return _merged(messages), options


def _tool(spec: dict[str, Any]) -> dict[str, Any]:
    """What comes back of a tool that is declared so."""
    function = {"name": spec["name"]} | {key: spec[key] for key in ("description", "parameters") if spec[key]}
    return {"type": spec["type"], "function": function}


def _merged(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbouring wire messages of one role as the parts of one message, but for turns and results, which end by themselves."""
    merged: list[dict[str, Any]] = []
    for message in messages:
        last: dict[str, Any] = merged[-1] if merged else {"role": None}
        if message["role"] in ("user", "system") and last["role"] == message["role"]:
            last["content"] = _parts(last["content"])
            last["content"] += _parts(message["content"])
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
        joins = role in ("user", "system")
        if joins and not content and content != "":
            yield Loss("message_rendered_empty", path, str(index))
            continue
        if joins and first is not None and messages[first]["role"] == role:
            yield Loss("system_merged", path, str(index))
            yield Loss("system_merged", f"messages[{first}].content", str(first))
        else:
            first = index
        if role == "tool" and not isinstance(content, str) and any(part.get("text") != "" for part in content or ()):
            yield Loss("content_dropped", f"{path}.content", str(index))
    for index, tool in enumerate(tools):
        if tool != _tool(_spec(tool)):
            yield Loss("schema_dropped", f"tools[{index}]", str(index))
    yield from order_losses(messages, tools)


FORMAT = Format(
    name="inkling",
    title="Inkling",
    options={
        "reasoning_effort": Option(
            EFFORT_TYPES, None, f"how much to think: a name, or a number from 0 to {HIGHEST_EFFORT}", (*EFFORTS, 0, 0.5, None)
        ),
    },
    write=write,
    generation_prompt=lambda options: M["MODEL_OPEN"],
    starts=((M["MODEL_OPEN"], "completion"),),
    read=read,
    losses=losses,
    parts=frozenset(PARTS),
    kind_of=_kind_of,
    text_blocks=True,
    result_names=True,
    notes={"generation": {}, "effort": {}},
    words={
        "arguments_not_json": "tool call arguments must be a parsed object, not a JSON string; canonicalize upstream",
        "arguments_not_mapping": "tool call arguments must be an object",
        "missing_tool_name": "tool call function name must be a string",
    },
)
