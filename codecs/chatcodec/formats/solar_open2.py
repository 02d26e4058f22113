"""Solar Open2: special tokens, one argument a line.

    <|im:start|>assistant<|im:content|><|think:start|>I will look.<|think:end|>Looking.<|tool_call:start|>search
    <|tool_arg:start|>query<|tool_arg:value|>tides<|tool_arg:end|>
    <|tool_call:end|>
    <|im:end|>

Source: the model's chat template.  System messages are gathered at the front wherever they stand, and come back as one
message there.  What the text cannot tell apart is decided one way: two adjacent blocks of tool results prove a message
between them that leaves no trace, so the system message is put back there, or an empty message of an unknown role.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from .. import wire as w
from ..errors import Loss
from ..format import Format, Option, Refuse
from ..grammar import markers
from ..inputs import EFFORT_TYPES, answer_order, last_of
from ..jsontext import dumps
from ..messages import Tool
from ..prompt import Misfit, PromptReader

M = markers("solar_open2")
BEHIND_STOP = M["TURN_END"].removeprefix(M["STOP"])
THINKING_EFFORTS = ("medium", "high", "xhigh")
EFFORTS = ("none", "minimal", "low", *THINKING_EFFORTS, None)
SHOWN = ("preserved", "interleaved", "off")


def write(wire: w.Wire, messages: list[dict[str, Any]], tools: Sequence[Tool], options: Mapping[str, Any], refuse: Refuse) -> None:
    """Render as the template does, in its order, so that of several faults the same one is reported."""
    _system(wire, messages, tools, options, refuse)
    last_user = last_of(messages, "user")
    for index, message in enumerate(messages):
        role = message["role"]
        if role == "user":
            wire += (index, "", w.ROLE, M["USER_OPEN"], w.USER, _text(message, index, refuse), w.CONTROL, M["TURN_END"])
        elif role == "assistant":
            _assistant(wire, message, index, index > last_user, options, refuse)
        elif role == "tool":
            if not message.get("tool_call_id"):
                words = "tool message is missing required 'tool_call_id' field"
                refuse(f"messages[{index}].tool_call_id", "missing_tool_call_id", "a tool result needs the id of its call", words)
            if not index or messages[index - 1]["role"] != "tool":
                _results(wire, messages, index, refuse)


def generation_prompt(options: Mapping[str, Any]) -> str:
    """What opens the next assistant turn: with the thinking open, or already closed."""
    thinks = options["reasoning_effort"] in THINKING_EFFORTS
    return M["ASSISTANT_OPEN"] + M["THINK_OPEN"] + ("" if thinks else M["THINK_CLOSE"])


def _text(message: dict[str, Any], index: int, refuse: Refuse) -> str:
    content = message.get("content")
    if type(content) is not str:
        refuse(f"messages[{index}].content", "content_not_string", f"a {message['role']} message needs text")
    return content


def _system(wire: w.Wire, messages: list[dict[str, Any]], tools: Sequence[Tool], options: Mapping[str, Any], refuse: Refuse) -> None:
    parts: list[tuple[Any, ...]] = []
    if options["provider_system_prompt"]:
        now = options["now"] or datetime.now()
        parts.append((w.OUTSIDE, "", w.CONTROL, M["PROVIDER_OPEN"], w.OPTION, now.strftime("%Y-%m-%d"), w.CONTROL, M["PROVIDER_CLOSE"]))
    instructions: list[Any] = []
    for index, message in enumerate(messages):
        if message["role"] == "system":
            opening = M["PART_NEXT"] if instructions else M["INSTRUCTIONS_OPEN"]
            instructions += (index, "", w.CONTROL, opening, w.SYSTEM, message.get("content") or "")
    if instructions:
        parts.append(tuple(instructions))
    if tools:
        declared: list[Any] = [w.OUTSIDE, "", w.CONTROL, M["TOOLS_OPEN"]]
        for index, tool in enumerate(tools):
            if "function" not in tool:
                refuse(f"tools[{index}]", "tool_not_wrapped", 'a tool must be {"type": "function", "function": {...}}')
            declared += (w.CONTROL, M["TOOL_OPEN"], w.TOOLS, dumps(tool["function"]), w.CONTROL, M["TOOL_CLOSE"])
        parts.append((*declared, w.CONTROL, M["TOOLS_CLOSE"]))
    if options["response_format"]:
        parts.append((w.OUTSIDE, "", *_response_format(options["response_format"], refuse)))
    if parts:
        wire += (w.OUTSIDE, "", w.ROLE, M["SYSTEM_OPEN"], *parts[0])
        for part in parts[1:]:
            wire += (w.CONTROL, M["PART_NEXT"], *part)
        wire += (w.CONTROL, M["TURN_END"])


def _response_format(wanted: dict[str, Any], refuse: Refuse) -> tuple[Any, ...]:
    if wanted.get("type") == "json_object":
        return w.CONTROL, M["FORMAT_OPEN"] + M["FORMAT_OBJECT"]
    if wanted.get("type") != "json_schema":
        return w.CONTROL, M["FORMAT_OPEN"]
    holder = wanted.get("json_schema")
    if not isinstance(holder, Mapping) or "schema" not in holder:
        refuse("options.response_format.json_schema.schema", "bad_option", "a response format of type json_schema needs a schema")
    opening = M["FORMAT_OPEN"] + M["FORMAT_SCHEMA_OPEN"]
    return w.CONTROL, opening, w.OPTION, dumps(holder["schema"]), w.CONTROL, M["FORMAT_SCHEMA_CLOSE"]


def _thoughts(message: dict[str, Any], recent: bool, options: Mapping[str, Any]) -> str | None:
    """The reasoning that the template writes for a turn; None where it writes no tags at all."""
    option = options["think_render_option"]
    if option not in ("preserved", "interleaved"):
        return None
    return message.get("reasoning_content", "") if recent or option == "preserved" else ""


def _assistant(wire: w.Wire, message: dict[str, Any], index: int, recent: bool, options: Mapping[str, Any], refuse: Refuse) -> None:
    wire += (index, "", w.ROLE, M["ASSISTANT_OPEN"])
    reasoning = _thoughts(message, recent, options)
    thinks = options["reasoning_effort"] in THINKING_EFFORTS
    sampled = reasoning == message.get("reasoning_content", "") and (thinks or not reasoning)
    if reasoning is not None:
        wire += (w.CONTROL, M["THINK_OPEN"])
        if sampled and thinks:
            wire += (w.SAMPLED, "")
        wire += (w.REASONING, reasoning, w.CONTROL, M["THINK_CLOSE"])
        if sampled and not thinks:
            wire += (w.SAMPLED, "")
    content = message.get("content")
    if content:
        wire += (w.CONTENT, content)
    for number, call in enumerate(message.get("tool_calls") or ()):
        if not call.id:
            words = "assistant tool_call is missing required 'id' field"
            refuse(f"messages[{index}].tool_calls[{number}].id", "missing_tool_call_id", "a tool call needs an id", words)
        wire += (w.CONTROL, M["CALL_OPEN"], w.CALL, call.name, w.CONTROL, M["NAME_END"])
        for name, value in call.arguments.items():
            text = value if type(value) is str else dumps(value)
            wire += (w.CONTROL, M["ARG_OPEN"], w.ARGUMENT_NAME, name, w.CONTROL, M["ARG_EQUALS"], w.ARGUMENT, text, w.CONTROL, M["ARG_END"])
        wire += (w.CONTROL, M["CALL_END"])
    wire += (w.CONTROL, M["STOP"])
    if reasoning is not None and sampled:
        wire += (w.SAMPLED_END, "")
    wire += (w.CONTROL, BEHIND_STOP)


def _results(wire: w.Wire, messages: list[dict[str, Any]], start: int, refuse: Refuse) -> None:
    """A block of results, in the order of the calls they answer; the rest behind them."""
    wire += (start, "", w.ROLE, M["RESULTS_HEAD"])
    opening = M["RESULT_OPEN"]
    for index in answer_order(messages, start):
        wire += (index, "", w.CONTROL, opening, w.RESULT, _text(messages[index], index, refuse))
        opening = M["RESULT_NEXT"]
    wire += (w.CONTROL, M["RESULTS_CLOSE"])


# ------------------------------------------------------------------------------------------------------ the way back


def read(reader: PromptReader) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The messages and options of a prompt."""
    notes, options = reader.notes, reader.options
    if "provider_prompt" in notes:
        try:
            options["now"] = date(*map(int, notes["provider_prompt"].split("-")))  # years before 1000 have no leading zero
        except (ValueError, TypeError):
            raise Misfit(0, f"{notes['provider_prompt']!r} is no date") from None
    if "json_schema" in notes:
        options["response_format"] = {"type": "json_schema", "json_schema": {"schema": reader.json(notes["json_schema"])}}
    options |= _think_option(reader)
    reader.tools = [{"type": "function", "function": function} for function in reader.tools]
    return _separated(reader), options


def _think_option(reader: PromptReader) -> dict[str, str]:
    """Which turns show their reasoning, where the text tells; the default shows those after the last user turn."""
    last_user = last_of(reader.messages, "user")
    if reader.untagged:
        return {"think_render_option": "off"}
    if any("reasoning_content" in message for message in reader.messages[: max(last_user, 0)]):
        return {"think_render_option": "preserved"}
    return {}


def _separated(reader: PromptReader) -> list[dict[str, Any]]:
    """The messages, with something between blocks of results that stand side by side."""
    messages = reader.messages
    gaps = [start for (_, end), (start, _) in zip(reader.blocks, reader.blocks[1:], strict=False) if end == start]
    if not gaps:
        return messages
    separators: list[dict[str, Any]] = [{"role": "separator", "content": ""} for _ in gaps]
    if messages[0]["role"] == "system":
        separators[0] = messages[0]
        messages, gaps = messages[1:], [gap - 1 for gap in gaps]
    for gap, separator in zip(reversed(gaps), reversed(separators), strict=True):
        messages.insert(gap, separator)
    return messages


def losses(messages: list[dict[str, Any]], tools: Sequence[Tool], options: Mapping[str, Any]) -> Iterable[Loss]:
    """What the template moves, merges, leaves out or writes alike."""
    systems = 0
    last_user = last_of(messages, "user")
    for index, message in enumerate(messages):
        role, path, content = message["role"], f"messages[{index}]", message.get("content")
        if role not in ("system", "user", "assistant", "tool"):
            yield Loss("message_dropped", path, str(index))
            continue
        if role == "system":
            if systems:
                yield Loss("system_merged", path, str(index))
            if index != systems:
                yield Loss("system_hoisted", path, str(index))
            systems += 1
        elif role == "assistant":
            if message.get("reasoning_content") and not _thoughts(message, index > last_user, options):
                yield Loss("reasoning_dropped", f"{path}.reasoning_content", str(index))
            if content and content.isspace() and message.get("tool_calls"):
                yield Loss("whitespace_trimmed", f"{path}.content", str(index))
        elif role == "tool" and messages[index - 1]["role"] != "tool":
            order = answer_order(messages, index)
            if order != sorted(order):
                yield Loss("tool_result_order", f"{path}.tool_call_id", str(index))
    for index, tool in enumerate(tools):
        if set(tool) - {"function"} and tool != {"type": "function", "function": tool["function"]}:
            yield Loss("schema_dropped", f"tools[{index}]", str(index))
    wanted = options["response_format"]
    if wanted and wanted not in ({"type": "json_object"}, {"type": "text"}):
        if wanted.get("type") != "json_schema" or set(wanted) != {"type", "json_schema"} or set(wanted["json_schema"]) != {"schema"}:
            yield Loss("schema_dropped", "options.response_format", "response_format")


FORMAT = Format(
    name="solar_open2",
    title="Solar Open2",
    options={
        "reasoning_effort": Option(
            EFFORT_TYPES, "high", "how much to think; medium, high and xhigh leave the thinking open", EFFORTS, passes_over=True
        ),
        "think_render_option": Option(
            (str,), "interleaved", "which turns show their reasoning: all, those after the last user turn, or none", SHOWN, passes_over=True
        ),
        "provider_system_prompt": Option((bool,), False, "put Upstage's own system prompt first"),
        "response_format": Option((dict, type(None)), None, "OpenAI's response_format, written into the system prompt"),
        "now": Option((date, type(None)), None, "the day that the provider's prompt names; today if null"),
    },
    write=write,
    generation_prompt=generation_prompt,
    starts=((M["THINK_OPEN"] + M["THINK_CLOSE"], "completion"), (M["THINK_OPEN"], "completion_thinking")),
    read=read,
    losses=losses,
    notes={
        "thinking": {},
        "no_thinking": {"reasoning_effort": "none"},
        "provider_prompt": {"provider_system_prompt": True},
        "json_object": {"response_format": {"type": "json_object"}},
        "other_format": {"response_format": {"type": "text"}},
        "json_schema": {},
    },
    reserved_in_names=("\n",),
)
