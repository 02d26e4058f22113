"""Beam (harmony_xml): Harmony headers and channels, calls with an XML body, tools as TypeScript.

    <|start|>assistant<|channel|>analysis<|message|>I will look.<|end|><|start|>assistant to=search<|channel|>analysis \
<|constrain|>xml<|message|><rfl:parameter name="query">
    tides
    </rfl:parameter><|call|><|start|>search to=assistant<|channel|>analysis<|message|>High at noon.<|end|>

Source: the model's chat template.  An assistant turn is one message of reasoning, which may be empty, then either its calls or
a final message: content beside calls is lost.  The system and developer messages that open a conversation become one block of
instructions and come back as one system message; later ones are not written.  Tools follow the instructions, but for those
that the model was trained with, which stand in the system block: the ones named in `builtin_tools`, and a `bash` of the
trained shape, which is declared in the trained words whatever its own are.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import wire as w
from ..errors import Loss
from ..format import Format, Option, Refuse
from ..grammar import markers
from ..inputs import EFFORT_TYPES, leading, named_effort
from ..jsontext import dumps
from ..messages import Function, Tool, function_of
from ..prompt import PromptReader
from ..reply import Layout
from ..typescript_writer import declare

M = markers("harmony_xml")
NEXT_ARGUMENT = M["ARG_NEXT"] + M["ARG_TAG"]
INSTRUCTING = ("system", "developer")
EFFORTS = {"minimal": 8, "low": 32, "medium": 64, "high": 128, "xhigh": 256, "max": 512}
TRAINED_BASH: Function = {
    "name": "bash",
    "description": "Execute a bash command. The output contains the command's stdout and stderr.\n"
    "Commands time out after 10 minutes. You can set a shorter timeout within the bash command.",
    "parameters": {
        "type": "object",
        "properties": {"command": {"type": "string", "description": "The command to execute"}},
        "required": ["command"],
    },
}
ARGUMENTS_WORDS = "function.arguments must be a dict; parse JSON strings before apply_chat_template"


def write(wire: w.Wire, messages: list[dict[str, Any]], tools: Sequence[Tool], options: Mapping[str, Any], refuse: Refuse) -> None:
    """Render as the template does, in its order, so that of several faults the same one is reported."""
    if not messages:
        refuse("messages", "no_messages", "there are no messages", "messages cannot be empty")
    functions = [_as_trained(function_of(tool)) for tool in tools]
    effort = _effort(options["reasoning_effort"], refuse)
    wire += (w.OUTSIDE, "", w.ROLE, M["SYSTEM_OPEN"], w.OPTION, options["model_identity"], w.CONTROL, M["EFFORT"], w.OPTION, effort)
    builtin = [function for function in functions if _is_builtin(function, options)]
    if builtin:
        wire += (w.CONTROL, M["PARAGRAPH"], *_declared(builtin))
    wire += (w.CONTROL, M["CHANNELS"] + M["END"])
    start = leading(messages, INSTRUCTING)
    if options["add_generation_prompt"] and not options["allow_missing_thinking"]:
        _check_thinking(messages, start, refuse)
    parts: list[Any] = []
    for index, message in enumerate(messages[:start]):
        if message.get("content"):
            parts += (index, "", w.CONTROL, M["PARAGRAPH"] if parts else M["INSTRUCTIONS"], w.SYSTEM, message["content"])
    regular = [function for function in functions if not _is_builtin(function, options)]
    if regular:
        parts += (w.OUTSIDE, "", w.CONTROL, M["PARAGRAPH"] if parts else "", *_declared(regular))
    if parts:
        wire += (w.OUTSIDE, "", w.ROLE, M["DEVELOPER_OPEN"], *parts, w.CONTROL, M["END"])
    names: dict[Any, str] = {}  # of the tools that were called, by the id of the call
    for index in range(start, len(messages)):
        message = messages[index]
        role = message["role"]
        if role == "user":
            wire += (index, "", w.ROLE, M["USER_OPEN"], w.USER, message.get("content") or "", w.CONTROL, M["END"])
        elif role == "assistant":
            _assistant(wire, message, index, names, refuse)
        elif role == "tool":
            name = message.get("name") or names.get(message.get("tool_call_id"))
            if name is None:
                words = "Tool message needs 'name' or a matching prior tool_call 'id' / 'tool_call_id'."
                refuse(f"messages[{index}].name", "missing_tool_name", "a tool result needs a name, or the id of an earlier call", words)
            wire += (index, "", w.ROLE, M["START"], w.RESULT, name, w.ROLE, M["RESULT_BODY"])
            wire += (w.RESULT, message.get("content") or "", w.CONTROL, M["END"])


def _effort(effort: Any, refuse: Refuse) -> str:
    """An effort as the number that the model knows it by."""
    if isinstance(effort, str):
        words = "reasoning_effort must be an int or one of: minimal, low, medium, high, xhigh, max"
        effort = named_effort(effort, EFFORTS, refuse, words)
    return str(EFFORTS["max"] if effort is None else effort)


def _check_thinking(messages: Sequence[Mapping[str, Any]], start: int, refuse: Refuse) -> None:
    for index in range(start, len(messages)):
        if messages[index]["role"] == "assistant" and not messages[index].get("reasoning_content"):
            words = (
                f"The assistant turn at messages[{index}] is missing its reasoning. Dropping reasoning from earlier turns degrades this "
                "model's output. Send it back in 'reasoning_content', or set allow_missing_thinking=true to skip this check."
            )
            refuse(f"messages[{index}].reasoning_content", "bad_message", "an assistant turn lacks its reasoning", words)


def _assistant(wire: w.Wire, message: dict[str, Any], index: int, names: dict[Any, str], refuse: Refuse) -> None:
    content, reasoning = message.get("content") or "", message.get("reasoning_content") or ""
    if M["ANALYSIS"] in content or M["FINAL"] in content:
        words = "Pass plain text in API fields, not Harmony wire tags. Use 'thinking' for analysis and 'content' for final."
        refuse(f"messages[{index}].content", "wire_tag_in_content", "the content holds the head of a Harmony message", words)
    if M["ANALYSIS"] in reasoning or M["FINAL"] in reasoning:
        words = "Pass plain text in 'thinking'/'reasoning_content'/'reasoning' without Harmony wire tags."
        refuse(f"messages[{index}].reasoning_content", "wire_tag_in_content", "the reasoning holds the head of a Harmony message", words)
    wire += (index, "", w.ROLE, M["ASSISTANT_OPEN"], w.GENERATION, "", w.SAMPLED, "")
    wire += (w.CONTROL, M["ANALYSIS"], w.REASONING, reasoning, w.CONTROL, M["END"], w.ROLE, M["ASSISTANT_OPEN"])
    calls = message.get("tool_calls")
    if calls:
        for number, call in enumerate(calls):
            if call.id:
                names[call.id] = call.name
            if number:
                wire += (w.CONTROL, M["END"], w.ROLE, M["ASSISTANT_OPEN"])
            wire += (w.CONTROL, M["RECIPIENT"], w.CALL, call.name, w.CONTROL, M["CALL_BODY"])
            _arguments(wire, call.arguments, index, number, refuse)
        wire += (w.CONTROL, M["STOP_CALL"])
    else:
        wire += (w.CONTROL, M["FINAL"], w.CONTENT, content, w.CONTROL, M["STOP_RETURN"])
    wire += (w.SAMPLED_END, "", w.GENERATION_END, "")


def _arguments(wire: w.Wire, arguments: Mapping[str, Any], index: int, number: int, refuse: Refuse) -> None:
    opening = M["ARG_TAG"]
    for name, value in arguments.items():
        text = value if type(value) is str else dumps(value)
        if M["ARG_END_TAG"] in text:
            path = f"messages[{index}].tool_calls[{number}].function.arguments"
            words = f"Tool-call parameter '{name}' contains the reserved delimiter {M['ARG_END_TAG']}"
            refuse(path, "reserved_delimiter", f"the argument {name!r} holds {M['ARG_END_TAG']}, which ends it", words)
        wire += (w.CONTROL, opening, w.ARGUMENT_NAME, name, w.CONTROL, M["NAME_END"], w.ARGUMENT, text, w.CONTROL, M["ARG_CLOSE"])
        opening = NEXT_ARGUMENT


def _declared(functions: Iterable[Function]) -> w.Wire:
    return w.listed(w.TOOLS, map(declare, functions), M["TOOLS"], M["PARAGRAPH"])


def _is_builtin(function: Function, options: Mapping[str, Any]) -> bool:
    """Whether a tool is declared in the system block."""
    return function is TRAINED_BASH or function["name"] in (options["builtin_tools"] or ())


def _as_trained(function: Function) -> Function:
    """The function itself, or the `bash` of the training for one that takes the same calls."""
    if function["name"] == "bash":
        match function.get("parameters"):
            case {"type": "object", "properties": {"command": {"type": "string", **about}, **others}, **rest}:
                known = about.keys() <= {"description"} and rest.keys() <= {"required", "additionalProperties", "description"}
                if known and not others and rest.get("required", ["command"]) == ["command"]:
                    return TRAINED_BASH
    return function


# ------------------------------------------------------------------------------------------------------ the way back


def read(reader: PromptReader) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The messages and options of a prompt."""
    notes, options = reader.notes, reader.options
    if notes.get("identity", "") != FORMAT.options["model_identity"].default:
        options["model_identity"] = notes.get("identity", "")
    if notes["effort"] != str(EFFORTS["max"]):
        options["reasoning_effort"] = reader.number(notes["effort"], "effort")
    for tool in reader.sections.get("declared", ()):
        if _as_trained(tool["function"]) is TRAINED_BASH:  # it stands where it would not if it had the trained shape
            parameters = tool["function"]["parameters"]
            parameters.update({"title": "bash"} if "required" in parameters else {"required": list[str]()})
    builtin = [tool["function"] for tool in reader.sections.get("builtin", ())]
    names = [function["name"] for function in builtin if declare(function) != declare(TRAINED_BASH)]
    if names:
        options["builtin_tools"] = names
    return reader.messages or [{"role": "system", "content": ""}], options


def losses(messages: list[dict[str, Any]], tools: Sequence[Tool], options: Mapping[str, Any]) -> Iterable[Loss]:
    """What the template merges, replaces, leaves out or writes alike."""
    identity = options["model_identity"]
    if FORMAT.control_search(identity) or M["EFFORT"] in identity:
        yield Loss("control_token_in_content", "options.model_identity", "model_identity")
    builtin = [_is_builtin(_as_trained(function_of(tool)), options) for tool in tools]
    order = sorted(range(len(tools)), key=lambda index: not builtin[index])
    yield from (Loss("schema_dropped", f"tools[{index}]", str(index)) for index, place in enumerate(order) if place != index)
    start = leading(messages, INSTRUCTING)
    first = next((index for index in range(start) if messages[index].get("content")), None)
    for index, message in enumerate(messages):
        role, path, content = message["role"], f"messages[{index}]", message.get("content")
        if index < start and not content:
            yield Loss("message_rendered_empty", path, str(index))
        elif index < start:
            if index != first:
                yield Loss("system_merged", path, str(index))
            elif role != "system":
                yield Loss("system_merged", f"{path}.role", str(index))
            if M["TOOLS"] in f"{content}{M['PARAGRAPH']}":  # as if the tools began there
                yield Loss("control_token_in_content", f"{path}.content", str(index))
        elif role not in ("user", "assistant", "tool"):
            yield Loss("message_dropped", path, str(index))
        elif role == "assistant" and content and message.get("tool_calls"):
            yield Loss("content_dropped", f"{path}.content", str(index))


FORMAT = Format(
    name="harmony_xml",
    title="Beam",
    options={
        "model_identity": Option((str,), "You are Beam, an AI assistant trained by Reflection.", "who the model is told to be"),
        "reasoning_effort": Option(EFFORT_TYPES, "max", "how much to think: a label or a number", (*EFFORTS, None)),
        "builtin_tools": Option((list, type(None)), None, "names of tools to declare in the system block"),
        "allow_missing_thinking": Option((bool,), True, "whether a generation prompt may follow turns without reasoning"),
    },
    write=write,
    generation_prompt=lambda options: M["ASSISTANT_OPEN"],
    starts=((M["ASSISTANT_OPEN"], "completion"),),
    read=read,
    losses=losses,
    declared=_as_trained,
    result_names=True,
    flat_calls=True,
    mixed_calls=True,
    layout={"ARG_VALUE": Layout.LINE},
    empty_reasoning=True,
    stop_ends_calls=True,
    notes={"identity": {}, "effort": {}, "generation": {}},
    words={"arguments_not_json": ARGUMENTS_WORDS, "arguments_not_mapping": ARGUMENTS_WORDS},
    reserved_in_names=(M["NAME_END"],),
)
