"""Qwen3.5: plain-text XML with layout newlines.

    <|im_start|>assistant
    <think>
    I will look.
    </think>

    Looking.

    <tool_call>
    <function=search>
    <parameter=query>
    tides
    </parameter>
    </function>
    </tool_call><|im_end|>

Source: the model's chat template (the variant that keeps the reasoning of every turn).  What the text cannot tell apart is
decided one way: a user turn that looks like a tool result is one; tools without any message come with an empty system
message; an assistant turn without reasoning comes back with empty reasoning, since the template always writes the tags.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import regex

from ..errors import Loss
from ..format import GENERATION_PROMPT, Format, Option, Refuse
from ..grammar import markers
from ..jsontext import dumps
from ..messages import Tool
from ..prompt import Misfit, PromptReader
from ..reply import Layout
from ..wire import (
    ARGUMENT,
    ARGUMENT_NAME,
    CALL,
    CONTENT,
    CONTROL,
    GENERATION,
    GENERATION_END,
    MEDIA,
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

M = markers("qwen3_5")
KINDS = {"system": SYSTEM, "user": USER, "assistant": CONTENT, "tool": RESULT}


def write(wire: Wire, messages: list[dict[str, Any]], tools: Sequence[Tool], options: Mapping[str, Any], refuse: Refuse) -> None:
    """Render as the template does, in its order, so that of several faults the same one is reported."""
    if not messages:
        refuse("messages", "no_messages", "there are no messages", "No messages provided.")
    media = {"image": 0, "video": 0} if options["add_vision_id"] else None
    first = messages[0]
    system = _content(first, 0, None, refuse) if first["role"] == "system" else None
    if tools:
        wire += (OUTSIDE, "", ROLE, M["SYSTEM_OPEN"], CONTROL, M["TOOLS_OPEN"])
        for index, tool in enumerate(tools):
            wire += (CONTROL, M["TOOL_NEXT"] if index else "", TOOLS, dumps(tool))
        wire += (CONTROL, M["TOOLS_CLOSE"])
        if system:
            wire += (0, "", CONTROL, M["TOOLS_GAP"], *system)
        wire += (CONTROL, M["TURN_END"])
    elif system is not None:
        wire += (0, "", ROLE, M["SYSTEM_OPEN"], *system, CONTROL, M["TURN_END"])
    last = len(messages) - 1
    for index, message in enumerate(messages):
        role = message["role"]
        if role == "user":
            content = message.get("content")
            if type(content) is str:
                wire += (index, "", ROLE, M["USER_OPEN"], USER, content.strip(), CONTROL, M["TURN_END"])
            else:
                wire += (index, "", ROLE, M["USER_OPEN"], *_content(message, index, media, refuse), CONTROL, M["TURN_END"])
        elif role == "assistant":
            _assistant(wire, message, index, _content(message, index, media, refuse), options, refuse)
        elif role == "tool":
            content = _content(message, index, media, refuse)
            if index and messages[index - 1]["role"] != "tool":
                wire += (index, "", ROLE, M["RESULTS_HEAD"])
            wire += (index, "", CONTROL, M["FIRST_RESULT_OPEN"], *content, CONTROL, M["RESULT_CLOSE"])
            if index == last or messages[index + 1]["role"] != "tool":
                wire += (CONTROL, M["TURN_END"])
        elif role == "system":
            if index:
                words = "System message must be at the beginning."
                refuse(f"messages[{index}]", "system_position", "a system message may only be the first", words)
        else:
            _content(message, index, media, refuse)
            refuse(f"messages[{index}].role", "unknown_role", f"unknown role {role!r}", "Unexpected message role.")
    if options["add_generation_prompt"]:
        wire += (OUTSIDE, "", ROLE, generation_prompt(options))


def generation_prompt(options: Mapping[str, Any]) -> str:
    """What opens the next assistant turn: with the thinking open, or already closed."""
    return M["ASSISTANT_OPEN"] + ("" if options["enable_thinking"] else M["THINK_CLOSE"])


def _content(message: dict[str, Any], index: int, media: dict[str, int] | None, refuse: Refuse) -> Sequence[Any]:
    """A message's content as pieces of the wire, trimmed at its outer ends."""
    content = message.get("content")
    kind = KINDS.get(message["role"], CONTENT)
    if type(content) is str:
        text = content.strip()
        return (kind, text) if text else ()
    pieces: list[Any] = []
    for number, part in enumerate(content or ()):
        path = f"messages[{index}].content[{number}]"
        what = _media_of(part)
        if what is not None:
            if message["role"] == "system":
                refuse(path, "media_not_supported", f"a system message cannot hold {what}s", f"System message cannot contain {what}s.")
            pieces += (MEDIA, _label(what, media) + M[what.upper()])
        elif "text" in part:
            if not isinstance(part["text"], str):
                refuse(f"{path}.text", "content_not_string", f"text must be a string, not {part['text']!r}")
            if pieces[-2:-1] == [kind]:
                pieces[-1] += part["text"]
            else:
                pieces += (kind, part["text"])
        else:
            refuse(path, "media_not_supported", f"unknown content part {part.get('type')!r}", "Unexpected item type in content.")
    if pieces and pieces[0] == kind:
        pieces[1] = pieces[1].lstrip()
    if pieces and pieces[-2] == kind:
        pieces[-1] = pieces[-1].rstrip()
    return pieces if any(pieces[1::2]) else ()


def _media_of(part: Mapping[str, Any]) -> str | None:
    if "image" in part or "image_url" in part or part.get("type") == "image":
        return "image"
    return "video" if "video" in part or part.get("type") == "video" else None


LABELS = {"image": "Picture ", "video": "Video "}


def _label(what: str, media: dict[str, int] | None) -> str:
    if media is None:
        return ""
    media[what] += 1
    return f"{LABELS[what]}{media[what]}: "


def _split_thinking(message: dict[str, Any], text: str) -> tuple[str, str] | None:
    """Reasoning that stands in the content, and what is left of that, where the message has no reasoning of its own."""
    if "reasoning_content" in message or M["THINK_END_TAG"] not in text:
        return None
    before = text.split(M["THINK_END_TAG"])[0].rstrip("\n").split(M["THINK_TAG"])[-1]
    return before.lstrip("\n"), text.split(M["THINK_END_TAG"])[-1].lstrip("\n")


def _assistant(wire: Wire, message: dict[str, Any], index: int, content: Sequence[Any], options: Mapping[str, Any], refuse: Refuse) -> None:
    reasoning = message.get("reasoning_content", "").strip()
    if content and "reasoning_content" not in message:
        split = _split_thinking(message, "".join(content[1::2]))
        if split is not None:
            reasoning, content = split[0].strip(), (CONTENT, split[1])
    wire += (index, "", ROLE, M["ASSISTANT_HEAD"], GENERATION, "", CONTROL, M["THINK_OPEN"])
    if options["enable_thinking"]:
        wire += (SAMPLED, "", REASONING, reasoning, CONTROL, M["THINK_CLOSE"], *content)
    elif reasoning:
        wire += (REASONING, reasoning, CONTROL, M["THINK_CLOSE"], *content)  # this is not how it was sampled
    else:
        wire += (CONTROL, M["THINK_CLOSE"], SAMPLED, "", *content)
    calls = message.get("tool_calls")
    if calls:
        opening = M["CALL_LATER"] if any(text.strip() for text in content[1::2]) else M["CALL_OPEN"]
        for number, call in enumerate(calls):
            wire += (CONTROL, opening, CALL, call.name, CONTROL, M["NAME_END"])
            for name, value in call.arguments.items():
                if type(name) is not str:
                    path = f"messages[{index}].tool_calls[{number}].function.arguments"
                    refuse(path, "arguments_not_mapping", f"an argument's name must be a string, not {name!r}")
                text = value if type(value) is str else dumps(value) if isinstance(value, (Mapping, list, tuple)) else str(value)
                wire += (CONTROL, M["ARG_OPEN"], ARGUMENT_NAME, name, CONTROL, M["NAME_END"], ARGUMENT, text, CONTROL, M["ARG_CLOSE"])
            wire += (CONTROL, M["CALL_CLOSE"])
            opening = M["CALL_NEXT"]
    wire += (CONTROL, M["STOP"])
    if options["enable_thinking"] or not reasoning:
        wire += (SAMPLED_END, "")
    wire += (CONTROL, M["TURN_END"][len(M["STOP"]) :], GENERATION_END, "")


# ------------------------------------------------------------------------------------------------------ the way back

_LABELLED = regex.compile(r"(?:Picture|Video) [0-9]+: \Z")


def read(reader: PromptReader) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The messages and options of a prompt."""
    options: dict[str, Any] = {}
    if reader.notes:
        options["add_generation_prompt"] = True
        if "no_thinking" in reader.notes:
            options["enable_thinking"] = False
    messages = reader.messages
    if not messages:
        if not reader.tools:
            raise Misfit(0, "a prompt has at least one message")
        messages = [{"role": "system", "content": ""}]
    for message in messages:
        _put_thinking_back(message)
    if _unlabel(messages):
        options["add_vision_id"] = True
    return messages, options


def _put_thinking_back(message: dict[str, Any]) -> None:
    """Content that begins with blanks was written with its reasoning in it: the template trims it in any other case."""
    content, reasoning = message["content"], message.get("reasoning_content")
    if isinstance(content, str) and content != content.lstrip() and reasoning is not None:
        if M["THINK_END_TAG"] not in content + reasoning and M["THINK_TAG"] not in reasoning:
            message["content"] = f"{M['THINK_TAG']}{reasoning}{M['THINK_END_TAG']}{content}"
            del message["reasoning_content"]


def _unlabel(messages: list[dict[str, Any]]) -> bool:
    """Take the labels off if every image and video has the one that `add_vision_id` gives it."""
    counts = {"image": 0, "video": 0}
    labelled: list[tuple[list[dict[str, Any]], int, int]] = []
    for message in messages:
        parts = message["content"]
        for number, part in enumerate(parts if isinstance(parts, list) else ()):
            if part["type"] == "text":
                continue
            label = _label(part["type"], counts)
            before = parts[number - 1] if number else {"type": "none"}
            if before["type"] != "text" or not before["text"].endswith(label):
                return False
            labelled.append((parts, number - 1, len(label)))
    for parts, number, length in labelled:
        parts[number]["text"] = parts[number]["text"][:-length]
    for parts in {id(parts): parts for parts, _, _ in labelled}.values():
        parts[:] = [part for part in parts if part.get("text") != ""]
    return bool(labelled)


def losses(messages: list[dict[str, Any]], tools: Sequence[Tool], options: Mapping[str, Any]) -> Iterable[Loss]:
    """What the template trims, splits, leaves out or writes alike."""
    for index, message in enumerate(messages):
        path, content = f"messages[{index}].content", message.get("content")
        parts = [{"text": content}] if isinstance(content, str) else content or ()
        texts = ["" if _media_of(part) else part["text"] for part in parts]
        media = [number for number, part in enumerate(parts) if _media_of(part)]
        head, tail = "".join(texts[: min(media, default=len(texts))]), "".join(texts[max(media, default=-1) + 1 :])
        if head != head.lstrip() or tail != tail.rstrip():
            yield Loss("whitespace_trimmed", path, str(index))
        for number in media:
            if parts[number] != {"type": _media_of(parts[number])}:
                yield Loss("media_dropped", f"{path}[{number}]", str(index))
        empty = not media and not head.strip()
        if message["role"] == "system" and tools and empty and len(messages) > 1:
            yield Loss("message_rendered_empty", f"messages[{index}]", str(index))
        if message["role"] == "assistant":
            if content is not None and not media and not head:
                yield Loss("null_content", path, str(index))
            yield from _reasoning_losses(message, index, "".join(texts))
        elif content is None:
            yield Loss("null_content", path, str(index))


def _reasoning_losses(message: dict[str, Any], index: int, text: str) -> Iterable[Loss]:
    reasoning, path = message.get("reasoning_content"), f"messages[{index}].reasoning_content"
    if _split_thinking(message, text) is not None:
        yield Loss("content_lost", f"messages[{index}].content", str(index))
    elif reasoning is None:
        yield Loss("null_content", path, str(index))
    elif reasoning != reasoning.strip():
        yield Loss("whitespace_trimmed", path, str(index))


FORMAT = Format(
    name="qwen3_5",
    title="Qwen3.5",
    options={
        "add_generation_prompt": GENERATION_PROMPT,
        "enable_thinking": Option((bool,), True, "leave the thinking open in the generation prompt"),
        "add_vision_id": Option((bool,), False, "number images and videos"),
    },
    write=write,
    generation_prompt=generation_prompt,
    tags=tuple(M[name] for name in ("THINK_TAG", "THINK_END_TAG", "TOOL_CALL_TAG", "TOOL_CALL_END_TAG", "RESULT_TAG", "RESULT_END_TAG")),
    starts=((M["ASSISTANT_OPEN"] + M["THINK_CLOSE"], "completion"), (M["ASSISTANT_OPEN"], "completion_thinking")),
    read=read,
    losses=losses,
    parts=frozenset(("text", "image", "image_url", "video")),
    flat_calls=True,
    layout={"REASONING": Layout.BLANKS, "CONTENT": Layout.BLANKS, "ARG_VALUE": Layout.LINE},
    empty_reasoning=True,
    notes=("thinking", "no_thinking"),
    reserved_in_names=(">",),
)
