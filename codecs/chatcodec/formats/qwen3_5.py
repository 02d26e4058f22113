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

from .. import wire as w
from ..errors import Loss
from ..format import Format, Option, Refuse
from ..grammar import markers
from ..inputs import Part, parts_of
from ..jsontext import dumps
from ..messages import Call, Tool
from ..prompt import PromptReader
from ..reply import Layout

M = markers("qwen3_5")
BEHIND_STOP = M["TURN_END"].removeprefix(M["STOP"])
LABELS = {"image": "Picture ", "video": "Video "}
KINDS = {"system": w.SYSTEM, "user": w.USER, "assistant": w.CONTENT, "tool": w.RESULT}


def write(wire: w.Wire, messages: list[dict[str, Any]], tools: Sequence[Tool], options: Mapping[str, Any], refuse: Refuse) -> None:
    """Render as the template does, in its order, so that of several faults the same one is reported."""
    if not messages:
        refuse("messages", "no_messages", "there are no messages", "No messages provided.")
    media = {"image": 0, "video": 0} if options["add_vision_id"] else None
    first = messages[0]
    system = _content(first, 0, None, refuse) if first["role"] == "system" else None
    if tools:
        wire += (w.OUTSIDE, "", w.ROLE, M["SYSTEM_OPEN"])
        wire += (*w.listed(w.TOOLS, map(dumps, tools), M["TOOLS_OPEN"], M["TOOL_NEXT"]), w.CONTROL, M["TOOLS_CLOSE"])
        if system:
            wire += (0, "", w.CONTROL, M["TOOLS_GAP"], *system)
        wire += (w.CONTROL, M["TURN_END"])
    elif system is not None:
        wire += (0, "", w.ROLE, M["SYSTEM_OPEN"], *system, w.CONTROL, M["TURN_END"])
    last = len(messages) - 1
    for index, message in enumerate(messages):
        role = message["role"]
        if role == "user":
            content = message.get("content")
            pieces = (w.USER, content.strip()) if type(content) is str else _content(message, index, media, refuse)
            wire += (index, "", w.ROLE, M["USER_OPEN"], *pieces, w.CONTROL, M["TURN_END"])
        elif role == "assistant":
            _assistant(wire, message, index, _content(message, index, media, refuse), options)
        elif role == "tool":
            content = _content(message, index, media, refuse)
            if index and messages[index - 1]["role"] != "tool":
                wire += (index, "", w.ROLE, M["RESULTS_HEAD"])
            wire += (index, "", w.CONTROL, M["FIRST_RESULT_OPEN"], *content, w.CONTROL, M["RESULT_CLOSE"])
            if index == last or messages[index + 1]["role"] != "tool":
                wire += (w.CONTROL, M["TURN_END"])
        elif role == "system":
            if index:
                words = "System message must be at the beginning."
                refuse(f"messages[{index}]", "system_position", "a system message may only be the first", words)
        else:
            _content(message, index, media, refuse)
            refuse(f"messages[{index}].role", "unknown_role", f"unknown role {role!r}", "Unexpected message role.")


def generation_prompt(options: Mapping[str, Any]) -> str:
    """What opens the next assistant turn: with the thinking open, or already closed."""
    return M["ASSISTANT_OPEN"] + ("" if options["enable_thinking"] else M["THINK_CLOSE"])


def _content(message: dict[str, Any], index: int, media: dict[str, int] | None, refuse: Refuse) -> Sequence[Any]:
    """A message's content as pieces of the wire, trimmed at its outer ends."""
    content = message.get("content")
    kind = KINDS.get(message["role"], w.CONTENT)
    if type(content) is str:
        text = content.strip()
        return (kind, text) if text else ()
    pieces: list[Any] = []
    for what, text, path in parts_of(content, f"messages[{index}].content", _kind_of, refuse, "Unexpected item type in content."):
        if what != "text":
            if message["role"] == "system":
                refuse(path, "media_not_supported", f"a system message cannot hold {what}s", f"System message cannot contain {what}s.")
            pieces += (w.MEDIA, _label(what, media) + M[what.upper()])
        elif pieces[-2:-1] == [kind]:
            pieces[-1] += text
        else:
            pieces += (kind, text)
    if pieces and pieces[0] == kind:
        pieces[1] = pieces[1].lstrip()
    if pieces and pieces[-2] == kind:
        pieces[-1] = pieces[-1].rstrip()
    return pieces if any(pieces[1::2]) else ()


def _kind_of(part: Part) -> str | None:
    if "image" in part or "image_url" in part or part.get("type") == "image":
        return "image"
    if "video" in part or part.get("type") == "video":
        return "video"
    return "text" if "text" in part else None


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


def _assistant(wire: w.Wire, message: dict[str, Any], index: int, content: Sequence[Any], options: Mapping[str, Any]) -> None:
    reasoning = message.get("reasoning_content", "").strip()
    if content and "reasoning_content" not in message:
        split = _split_thinking(message, "".join(content[1::2]))
        if split is not None:
            reasoning, content = split[0].strip(), (w.CONTENT, split[1])
    wire += (index, "", w.ROLE, M["ASSISTANT_HEAD"], w.GENERATION, "", w.CONTROL, M["THINK_OPEN"])
    if options["enable_thinking"]:
        wire += (w.SAMPLED, "", w.REASONING, reasoning, w.CONTROL, M["THINK_CLOSE"], *content)
    elif reasoning:
        wire += (w.REASONING, reasoning, w.CONTROL, M["THINK_CLOSE"], *content)  # this is not how it was sampled
    else:
        wire += (w.CONTROL, M["THINK_CLOSE"], w.SAMPLED, "", *content)
    calls = message.get("tool_calls")
    if calls:
        _calls(wire, calls, M["CALL_LATER"] if any(text.strip() for text in content[1::2]) else M["CALL_OPEN"])
    wire += (w.CONTROL, M["STOP"])
    if options["enable_thinking"] or not reasoning:
        wire += (w.SAMPLED_END, "")
    wire += (w.CONTROL, BEHIND_STOP, w.GENERATION_END, "")


def _calls(wire: w.Wire, calls: Iterable[Call], opening: str) -> None:
    for call in calls:
        wire += (w.CONTROL, opening, w.CALL, call.name, w.CONTROL, M["NAME_END"])
        for name, value in call.arguments.items():
            text = value if type(value) is str else dumps(value) if isinstance(value, (Mapping, list, tuple)) else str(value)
            wire += (w.CONTROL, M["ARG_OPEN"], w.ARGUMENT_NAME, name, w.CONTROL, M["NAME_END"], w.ARGUMENT, text, w.CONTROL, M["ARG_CLOSE"])
        wire += (w.CONTROL, M["CALL_CLOSE"])
        opening = M["CALL_NEXT"]


# ------------------------------------------------------------------------------------------------------ the way back


def read(reader: PromptReader) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The messages and options of a prompt."""
    messages, options = reader.messages, reader.options
    if not messages:
        reader.check(bool(reader.tools), "a prompt has at least one message")
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
    labelled: list[tuple[dict[str, Any], str]] = []  # the texts before media, and the labels that they end with
    lists = [message["content"] for message in messages if isinstance(message["content"], list)]
    for parts in lists:
        for before, part in zip([None, *parts], parts, strict=False):
            if part["type"] != "text":
                label = _label(part["type"], counts)
                if before is None or not before.get("text", "").endswith(label):
                    return False
                labelled.append((before, label))
    for text, label in labelled:
        text["text"] = text["text"].removesuffix(label)
    for parts in lists:
        parts[:] = [part for part in parts if part.get("text") != ""]
    return bool(labelled)


def losses(messages: list[dict[str, Any]], tools: Sequence[Tool], options: Mapping[str, Any]) -> Iterable[Loss]:
    """What the template trims, splits, leaves out or writes alike."""
    for index, message in enumerate(messages):
        role, path, content = message["role"], f"messages[{index}]", message.get("content")
        parts: Iterable[Part] = [{"text": content}] if isinstance(content, str) else content or ()
        text = "".join(part["text"] if _kind_of(part) == "text" else M["IMAGE"] for part in parts)
        if text != text.strip():
            yield Loss("whitespace_trimmed", f"{path}.content", str(index))
        if role == "system" and tools and not text.strip() and len(messages) > 1:
            yield Loss("message_rendered_empty", path, str(index))
        if role == "assistant" and _split_thinking(message, text):
            yield Loss("content_lost", f"{path}.content", str(index))
        reasoning = message.get("reasoning_content", "")
        if role == "assistant" and reasoning != reasoning.strip():
            yield Loss("whitespace_trimmed", f"{path}.reasoning_content", str(index))


FORMAT = Format(
    name="qwen3_5",
    title="Qwen3.5",
    options={
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
    kind_of=_kind_of,
    flat_calls=True,
    layout={"REASONING": Layout.BLANKS, "CONTENT": Layout.BLANKS, "ARG_VALUE": Layout.LINE},
    empty_reasoning=True,
    notes={"thinking": {}, "no_thinking": {"enable_thinking": False}},
    reserved_in_names=(">",),
)
