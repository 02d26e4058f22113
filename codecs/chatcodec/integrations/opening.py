"""Where a completion begins, and the marks around its parts: what a plug-in for a serving engine must know of a format.

Rules of this module: all of it is read off what the format says of itself and renders; no format is named here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from ..errors import RenderError
from ..events import ContentDelta, ReasoningDelta
from ..format import Format
from ..messages import Tool
from ..stream import Stream
from ..wire import Rendered

TAIL = 256  #: tokens at the end of a prompt among which the opening of the assistant turn stands, nearly always


def open_stream(
    fmt: Format, *, tools: Sequence[Tool] | None = None, prompt: str | None = None, options: Mapping[str, Any] | None = None
) -> tuple[Stream, str, str]:
    """A stream in the state that a prompt leaves it in, what the prompt already says of the assistant's turn, and the end of
    that which the stream holds back, to tell it later though the prompt has it.

    Without a prompt the template's options count, as far as the format knows them.
    """
    if prompt:
        opening, prefill = _split(fmt, prompt)
        stream = fmt.stream(tools=tools, prompt=opening)
        if prefill and any(found.code == "text_after_end" for found in fmt.parse(prefill, prompt=opening).diagnostics):
            prefill = ""  # a finished turn: the prompt opens none
        told = [event.text for event in stream.feed(prefill) if isinstance(event, ReasoningDelta | ContentDelta)]
        return stream, prefill, prefill.rpartition(told[-1])[2] if told else ""
    try:
        return fmt.stream(tools=tools, **_known(fmt, options)), "", ""
    except RenderError:
        return fmt.stream(tools=tools), "", ""  # the model's template took a value that is not in its list


def _known(fmt: Format, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options that the format knows."""
    return {name: value for name, value in (options or {}).items() if name in fmt.options and name != "add_generation_prompt"}


def generation_prompt(fmt: Format, options: Mapping[str, Any] | None) -> str:
    """The text that opens a turn of the model, with these template options as far as the format knows them."""
    defaults = {name: option.default for name, option in fmt.options.items()}
    return fmt.generation_prompt({**defaults, **_known(fmt, options)})


def _split(fmt: Format, prompt: str) -> tuple[str, str]:
    """A prompt up to the opening of its last assistant turn, and what stands behind that."""
    ends = [(found + len(suffix), len(suffix)) for suffix, _ in fmt.starts if (found := prompt.rfind(suffix)) >= 0]
    if not ends:
        return prompt, ""
    end = max(ends)[0]
    return prompt[:end], prompt[end:]


def opens_turn(fmt: Format, prompt: str) -> bool:
    """Whether the opening of an assistant turn stands in this end of a prompt."""
    return any(suffix in prompt for suffix, _ in fmt.starts)


def functions_of(tools: Iterable[Any] | None) -> list[dict[str, Any]]:
    """The functions among an engine's tools, as plain data."""
    made = [tool if isinstance(tool, dict) else tool.model_dump() for tool in tools or ()]
    return [tool for tool in made if tool.get("type", "function") == "function" and (tool.get("function") or tool).get("name")]


def prompt_text(fmt: Format, tokens: Sequence[int], decode: Callable[[Sequence[int]], str]) -> str:
    """The end of a prompt as text, as far back as the opening of the assistant turn."""
    text = decode(tokens[-TAIL:])
    return text if len(tokens) <= TAIL or opens_turn(fmt, text) else decode(tokens)


class Marks(NamedTuple):
    """What stands around reasoning, each "" where the format has none, and the tokens that end a turn."""

    start: str
    end: str
    stops: tuple[str, ...]


@cache
def marks(fmt: Format) -> Marks:
    """The marks of a format, read off what it writes."""
    stops = fmt.stop_strings
    text, before = _sampled(fmt, {"reasoning_content": "zqr", "content": "zqc"})
    if "zqr" not in text:
        return Marks("", "", stops)
    lead, _, rest = text.partition("zqr")
    start = lead.strip() or max((token for token in fmt.special_tokens if before.rstrip().endswith(token)), key=len, default="")
    between = rest.partition("zqc")[0]
    found = [(between.index(token), -len(token), token) for token in fmt.special_tokens if token in between]
    return Marks(start, min(found)[2] if found else "", stops)


def _sampled(fmt: Format, turn: Mapping[str, Any]) -> tuple[str, str]:
    """What a model writes for a turn, and the text before it."""
    rendered: Rendered = fmt.render([{"role": "user", "content": "zqu"}, {"role": "assistant", **turn}])
    span = rendered.sampled_spans[-1]
    return (rendered.text[slice(*span)], rendered.text[: span[0]]) if span is not None else ("", "")


def reasoning_closed(fmt: Format, text: str) -> bool:
    """Whether reasoning is over at the end of this text: a prompt, or a prompt and what was written behind it."""
    start, end, _ = marks(fmt)
    if not end:
        return True
    for suffix, _ in fmt.starts:
        if text.endswith(suffix):
            return end in suffix
    return text.rfind(end) > text.rfind(start)
