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

from ..errors import Loss, nearest
from ..format import GENERATION_PROMPT, Format, Option, Refuse
from ..grammar import markers
from ..jsontext import dumps
from ..messages import Function, Tool, function_of
from ..prompt import PromptReader
from ..reply import Layout
from ..typescript_writer import declare
from ..wire import (
    ARGUMENT,
    ARGUMENT_NAME,
    CALL,
    CONTENT,
    CONTROL,
    GENERATION,
    GENERATION_END,
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

M = markers("harmony_xml")
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


def write(wire: Wire, messages: list[dict[str, Any]], tools: Sequence[Tool], options: Mapping[str, Any], refuse: Refuse) -> None:
    """Render as the template does, in its order, so that of several faults the same one is reported."""
    if not messages:
        refuse("messages", "no_messages", "there are no messages", "messages cannot be empty")
    functions = [_as_trained(function_of(tool)) for tool in tools]
    effort = _effort(options["reasoning_effort"], refuse)
    wire += (OUTSIDE, "", ROLE, M["SYSTEM_OPEN"], OPTION, options["model_identity"], CONTROL, M["EFFORT"], OPTION, effort)
    builtin = [function for function in functions if _is_builtin(function, options)]
    if builtin:
        wire += (CONTROL, M["PARAGRAPH"], *_tools(builtin))
    wire += (CONTROL, M["CHANNELS"] + M["END"])
    start = _leading(messages)
    if options["add_generation_prompt"] and not options["allow_missing_thinking"]:
        _check_thinking(messages, start, refuse)
    parts: list[Any] = []
    for index, message in enumerate(messages[:start]):
        if message.get("content"):
            parts += (index, "", CONTROL, M["PARAGRAPH"] if parts else M["INSTRUCTIONS"], SYSTEM, message["content"])
    regular = [function for function in functions if not _is_builtin(function, options)]
    if regular:
        parts += (OUTSIDE, "", CONTROL, M["PARAGRAPH"] if parts else "", *_tools(regular))
    if parts:
        wire += (OUTSIDE, "", ROLE, M["DEVELOPER_OPEN"], *parts, CONTROL, M["END"])
    names: dict[Any, str] = {}  # of the tools that were called, by the id of the call
    for index in range(start, len(messages)):
        message = messages[index]
        role = message["role"]
        if role == "user":
            wire += (index, "", ROLE, M["USER_OPEN"], USER, message.get("content") or "", CONTROL, M["END"])
        elif role == "assistant":
            _assistant(wire, message, index, names, refuse)
        elif role == "tool":
            name = message.get("name") or names.get(message.get("tool_call_id"))
            if name is None:
                words = "Tool message needs 'name' or a matching prior tool_call 'id' / 'tool_call_id'."
                refuse(f"messages[{index}].name", "missing_tool_name", "a tool result needs a name, or the id of an earlier call", words)
            wire += (index, "", ROLE, M["START"], RESULT, name, ROLE, M["RESULT_BODY"])
            wire += (RESULT, message.get("content") or "", CONTROL, M["END"])
    if options["add_generation_prompt"]:
        wire += (OUTSIDE, "", ROLE, generation_prompt(options))


def generation_prompt(options: Mapping[str, Any]) -> str:
    """What opens the next assistant turn."""
    return M["ASSISTANT_OPEN"]


def _leading(messages: Sequence[Mapping[str, Any]]) -> int:
    """How many system and developer messages open the conversation."""
    return next((index for index, message in enumerate(messages) if message["role"] not in INSTRUCTING), len(messages))


def _effort(effort: Any, refuse: Refuse) -> str:
    """An effort as the number that the model knows it by."""
    if effort is None:
        effort = "max"
    if isinstance(effort, str):
        if effort not in EFFORTS:
            known = ", ".join(EFFORTS)
            detail = f"unknown effort {effort!r}{nearest(effort, EFFORTS)}; there are {known}, and numbers"
            refuse("options.reasoning_effort", "bad_option", detail, f"reasoning_effort must be an int or one of: {known}")
        effort = EFFORTS[effort]
    return str(effort)


def _check_thinking(messages: Sequence[Mapping[str, Any]], start: int, refuse: Refuse) -> None:
    for index in range(start, len(messages)):
        if messages[index]["role"] == "assistant" and not messages[index].get("reasoning_content"):
            words = (
                f"The assistant turn at messages[{index}] is missing its reasoning. Dropping reasoning from earlier turns degrades this "
                "model's output. Send it back in 'reasoning_content', or set allow_missing_thinking=true to skip this check."
            )
            refuse(f"messages[{index}].reasoning_content", "bad_message", "an assistant turn lacks its reasoning", words)


def _assistant(wire: Wire, message: dict[str, Any], index: int, names: dict[Any, str], refuse: Refuse) -> None:
    content, reasoning = message.get("content") or "", message.get("reasoning_content") or ""
    if M["ANALYSIS"] in content or M["FINAL"] in content:
        words = "Pass plain text in API fields, not Harmony wire tags. Use 'thinking' for analysis and 'content' for final."
        refuse(f"messages[{index}].content", "wire_tag_in_content", "the content holds the head of a Harmony message", words)
    if M["ANALYSIS"] in reasoning or M["FINAL"] in reasoning:
        words = "Pass plain text in 'thinking'/'reasoning_content'/'reasoning' without Harmony wire tags."
        refuse(f"messages[{index}].reasoning_content", "wire_tag_in_content", "the reasoning holds the head of a Harmony message", words)
    wire += (index, "", ROLE, M["ASSISTANT_OPEN"], GENERATION, "", SAMPLED, "")
    wire += (CONTROL, M["ANALYSIS"], REASONING, reasoning, CONTROL, M["END"], ROLE, M["ASSISTANT_OPEN"])
    calls = message.get("tool_calls")
    if calls:
        for number, call in enumerate(calls):
            if call.id:
                names[call.id] = call.name
            if number:
                wire += (CONTROL, M["END"], ROLE, M["ASSISTANT_OPEN"])
            wire += (CONTROL, M["RECIPIENT"], CALL, call.name, CONTROL, M["CALL_BODY"])
            _arguments(wire, call.arguments, f"messages[{index}].tool_calls[{number}].function.arguments", refuse)
        wire += (CONTROL, M["STOP_CALL"])
    else:
        wire += (CONTROL, M["FINAL"], CONTENT, content, CONTROL, M["STOP_RETURN"])
    wire += (SAMPLED_END, "", GENERATION_END, "")


def _arguments(wire: Wire, arguments: Mapping[str, Any], path: str, refuse: Refuse) -> None:
    opening = M["ARG_TAG"]
    for name, value in arguments.items():
        if type(name) is not str:
            refuse(path, "arguments_not_mapping", f"an argument's name must be a string, not {name!r}")
        text = value if type(value) is str else dumps(value)
        if M["ARG_END_TAG"] in text:
            words = f"Tool-call parameter '{name}' contains the reserved delimiter {M['ARG_END_TAG']}"
            refuse(path, "reserved_delimiter", f"the argument {name!r} holds {M['ARG_END_TAG']}, which ends it", words)
        wire += (CONTROL, opening, ARGUMENT_NAME, name, CONTROL, M["NAME_END"], ARGUMENT, text, CONTROL, M["ARG_CLOSE"])
        opening = M["ARG_NEXT"] + M["ARG_TAG"]


def _tools(functions: Iterable[Function]) -> list[Any]:
    """A section of tools as pieces of the wire."""
    pieces: list[Any] = []
    for function in functions:
        pieces += (CONTROL, M["PARAGRAPH"] if pieces else M["TOOLS"], TOOLS, declare(function))
    return pieces


def _is_builtin(function: Function, options: Mapping[str, Any]) -> bool:
    """Whether a tool is declared in the system block."""
    return function is TRAINED_BASH or function["name"] in (options["builtin_tools"] or ())


def _as_trained(function: Function) -> Function:
    """The function itself, or the `bash` of the training for one that takes the same calls."""
    parameters = function.get("parameters")
    if function["name"] != "bash" or not isinstance(parameters, Mapping):
        return function
    properties = parameters.get("properties")
    command = properties.get("command") if isinstance(properties, Mapping) else None
    trained = (
        isinstance(command, Mapping)
        and list(properties or ()) == ["command"]
        and command.keys() <= {"type", "description"}
        and command.get("type") == "string"
        and parameters.keys() <= {"type", "properties", "required", "additionalProperties", "description"}
        and parameters.get("type") == "object"
        and parameters.get("required", ["command"]) == ["command"]
    )
    return TRAINED_BASH if trained else function


# ------------------------------------------------------------------------------------------------------ the way back


def read(reader: PromptReader) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The messages and options of a prompt."""
    notes, options = reader.notes, dict[str, Any]()
    if notes.get("identity", "") != FORMAT.options["model_identity"].default:
        options["model_identity"] = notes.get("identity", "")
    if notes["effort"] != str(EFFORTS["max"]):
        try:
            options["reasoning_effort"] = int(notes["effort"])
        except ValueError:
            reader.check(_is_number(notes["effort"]), f"{notes['effort']!r} is no effort")
            options["reasoning_effort"] = float(notes["effort"])
    builtin = len(read_tools(notes["builtin"])) if "builtin" in notes else 0
    for tool in reader.tools[builtin:]:
        if _as_trained(tool["function"]) is TRAINED_BASH:  # it stands where it would not if it had the trained shape
            parameters = tool["function"]["parameters"]
            parameters.update({"title": "bash"} if "required" in parameters else {"required": list[str]()})
    if "builtin" in notes:
        declared = [function_of(tool) for tool in read_tools(notes["builtin"])]
        names = [function["name"] for function in declared if declare(function) != declare(TRAINED_BASH)]
        if names:
            options["builtin_tools"] = names
    if "generation" in notes:
        options["add_generation_prompt"] = True
    return reader.messages or [{"role": "system", "content": ""}], options


def read_tools(text: str) -> list[dict[str, Any]]:
    """The tools of a section.  Whoever only renders or parses completions does not pay for what reads TypeScript."""
    from ..typescript import read_declarations

    return read_declarations(text)


def shown(function: Function) -> Function:
    """What a tool's declaration shows of it."""
    try:
        found: Function = read_tools(declare(_as_trained(function)))[0]["function"]
    except ValueError:
        return function
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def losses(messages: list[dict[str, Any]], tools: Sequence[Tool], options: Mapping[str, Any]) -> Iterable[Loss]:
    """What the template merges, replaces, leaves out or writes alike."""
    identity = options["model_identity"]
    if FORMAT.control_search(identity) or M["EFFORT"] in identity:
        yield Loss("control_token_in_content", "options.model_identity", "model_identity")
    yield from _tool_losses(tools, options)
    start = _leading(messages)
    kept = [index for index in range(start) if messages[index].get("content")]
    for index, message in enumerate(messages):
        role, path, content = message["role"], f"messages[{index}]", message.get("content")
        if index < start and not content:
            yield Loss("message_rendered_empty", path, str(index))
        elif index < start:
            if index != kept[0]:
                yield Loss("system_merged", path, str(index))
            elif role != "system":
                yield Loss("system_merged", f"{path}.role", str(index))
            if M["TOOLS"] in f"{content}{M['PARAGRAPH']}":  # as if the tools began there
                yield Loss("control_token_in_content", f"{path}.content", str(index))
        elif role == "assistant":
            if content and message.get("tool_calls"):
                yield Loss("content_dropped", f"{path}.content", str(index))
            elif content == "":
                yield Loss("null_content", f"{path}.content", str(index))
            if "reasoning_content" not in message:
                yield Loss("null_content", f"{path}.reasoning_content", str(index))
        elif role not in ("user", "tool"):
            yield Loss("message_dropped", path, str(index))
        elif content is None:
            yield Loss("null_content", f"{path}.content", str(index))


def _tool_losses(tools: Sequence[Tool], options: Mapping[str, Any]) -> Iterable[Loss]:
    """What a tool's declaration does not show, and the place among the tools of those that the system block sets apart."""
    from ..typescript import dropped

    functions = [_as_trained(function_of(tool)) for tool in tools]
    order = sorted(range(len(tools)), key=lambda index: not _is_builtin(functions[index], options))
    for index, (tool, function, place) in enumerate(zip(tools, functions, order, strict=True)):
        path, own = f"tools[{index}]", function_of(tool)
        if place != index or (function is TRAINED_BASH and own != TRAINED_BASH) or tool != {"type": "function", "function": own}:
            yield Loss("schema_dropped", path, str(index))
        inner = f"{path}.function" if "function" in tool else path
        if function is own:
            yield from (Loss("schema_dropped", f"{inner}.{lost}", str(index)) for lost in dropped(function))
            if FORMAT.control_search(declare(function)):
                yield Loss("control_token_in_content", path, str(index))


FORMAT = Format(
    name="harmony_xml",
    title="Beam",
    options={
        "add_generation_prompt": GENERATION_PROMPT,
        "model_identity": Option((str,), "You are Beam, an AI assistant trained by Reflection.", "who the model is told to be"),
        "reasoning_effort": Option((str, int, float, type(None)), "max", "how much to think: a label or a number", (*EFFORTS, None)),
        "builtin_tools": Option((list, type(None)), None, "names of tools to declare in the system block"),
        "allow_missing_thinking": Option((bool,), True, "whether a generation prompt may follow turns without reasoning"),
    },
    write=write,
    generation_prompt=generation_prompt,
    starts=((M["ASSISTANT_OPEN"], "completion"),),
    read=read,
    read_tools=read_tools,
    shown=shown,
    losses=losses,
    flat_calls=True,
    mixed_calls=True,
    layout={"ARG_VALUE": Layout.LINE},
    empty_reasoning=True,
    stop_ends_calls=True,
    notes=("identity", "effort", "generation"),
    words={"arguments_not_json": ARGUMENTS_WORDS, "arguments_not_mapping": ARGUMENTS_WORDS},
    reserved_in_names=(M["NAME_END"],),
)
