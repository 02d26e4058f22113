"""Assertions on a format: that nothing is lost in silence, and that a template writes the same.

Rules of this module: an assertion that fails says every place with what was given and what came back; it needs neither pytest
nor Hypothesis.
"""

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any

from ..checks.checking import Checked, check
from ..checks.comparing import forged, shown
from ..checks.templates import ChatTemplate, compile_template, read_templates
from ..checks.verifying import Parting
from ..checks.verifying import compare as compare_texts
from ..errors import CodecError
from ..format import Format
from ..formats import get_format
from ..messages import Conversation, Message

Given = Conversation | Mapping[str, Any] | Sequence[Mapping[str, Any] | Message]
MOST = 20  #: differences that a message tells


def assert_round_trip(format: str | Format, conversation: Given, *, exact: bool = False) -> Checked:
    """Assert that a conversation comes back from its text, but for what losses name; with `exact`, that all of it does.

    `conversation` is a Conversation, an object with `messages` and perhaps `tools` and `options`, or a list of messages.
    Besides, what the model wrote of it is parsed as completions, whole and by the character, and must say what the whole
    prompt says.  Gives what was found.  Raises AssertionError that tells every difference.
    """
    codec = get_format(format) if isinstance(format, str) else format
    messages, tools, options = _parts_of(conversation)
    found = check(codec, messages, tools, **options)
    if found.error is not None:
        raise AssertionError(f"the conversation cannot be rendered: {found.error}") from found.error
    wrong = found.differences if exact else found.unexplained
    if wrong:
        told = [f"  {each.path}: {each.given} came back as {each.read}{_named(each.codes)}" for each in wrong[:MOST]]
        more = [f"  and {len(wrong) - MOST} more"] if len(wrong) > MOST else []
        why = "came back otherwise" if exact else "came back otherwise, and no loss names it"
        raise AssertionError("\n".join([f"{codec.name}: this {why}:", *told, *more]))
    _assert_completions(codec, found)
    return found


def assert_same_text(format: str | Format, template: str | PathLike[str] | ChatTemplate, conversation: Given) -> None:
    """Assert that a Jinja chat template (a path, or compiled) and a format write the same text, or both refuse to.

    Raises AssertionError with the first difference, CodecError for a template that cannot be read.
    """
    codec = get_format(format) if isinstance(format, str) else format
    compiled = template if isinstance(template, ChatTemplate) else compile_template(read_templates(fspath(template)))
    messages, tools, options = _parts_of(conversation)
    found = compare_texts(codec, compiled, messages, tools, **options)
    if isinstance(found, Parting):
        where = f" at line {found.line}, column {found.column} ({found.place})" if found.place else ""
        lines = [
            f"{codec.name} and {compiled.origin} part ({found.kind}){where}:",
            f"  format    {found.ours!r}",
            f"  template  {found.theirs!r}",
        ]
        raise AssertionError("\n".join(lines))


def _named(codes: Sequence[str]) -> str:
    return f" ({', '.join(codes)})" if codes else ""


def _parts_of(given: Given) -> tuple[Sequence[Any], Any, dict[str, Any]]:
    if isinstance(given, Conversation):
        return given.messages, given.tools, given.options
    if isinstance(given, Mapping):
        if "messages" not in given:
            raise CodecError("a conversation is a list of messages, or an object with messages")
        return given["messages"], given.get("tools"), dict(given.get("options") or {})
    return given, None, {}


def _assert_completions(codec: Format, found: Checked) -> None:
    """That a completion says what the prompt says that holds it, and says it by the character too."""
    if found.rendered is None or found.read is None or forged(found.losses):
        return
    read = [message for message in found.read.messages if message.role == "assistant"]
    given = [index for index, message in enumerate(found.rendered._messages) if message["role"] == "assistant"]
    # a name that reads as another tool's is a loss; a prompt has only what was declared, and a completion is read more freely
    renamed = {int(loss.path[9 : loss.path.index("]")]) for loss in found.losses if loss.path.endswith(".function.name")}
    if len(read) != len(given):
        return
    for index, message, span in zip(given, read, found.rendered.sampled_spans, strict=True):
        if span is None or index in renamed:
            continue
        prompt, text = found.rendered.text[: span[0]], found.rendered.text[span[0] : span[1]]
        reply = codec.parse(text, tools=found.read.tools, prompt=prompt)
        said, meant = _said(reply.message), _said(message)
        if said != meant:
            raise AssertionError(f"{codec.name}: the completion {text!r} says {said}, and the whole prompt {meant}")
        stream = codec.stream(tools=found.read.tools, prompt=prompt)
        for character in text:
            stream.feed(character)
        stream.close()
        if _said(stream.reply.message) != said or stream.reply.diagnostics != reply.diagnostics:
            raise AssertionError(f"{codec.name}: by the character {text!r} says {_said(stream.reply.message)}, and at once {said}")


def _said(message: Message) -> str:
    """What a message says, as text to compare: where the prompt has closed the thinking, empty reasoning is in the prompt."""
    content = message.content
    if isinstance(content, list) and all(part.get("type") == "text" for part in content):
        content = "".join(part["text"] for part in content)
    calls = [[call.name, call.arguments] for call in message.tool_calls]
    return shown({"reasoning": message.reasoning_content or None, "content": content or None, "calls": calls})
