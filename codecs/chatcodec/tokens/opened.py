"""A conversation whose last turn is left open, so that the model goes on with it (`continue_final_message`).

Rules of this module:

* the text ends where the last text of the turn ends; whatever would close it is left out;
* nothing of an open turn was sampled;
* a completion of an open turn is parsed together with it: `fmt.parse(opened.turn + completion, prompt=opened.prompt)`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import CodecError
from ..messages import Message, Tool
from ..wire import FORMATS_OWN, SIGNS, Rendered, Wire

if TYPE_CHECKING:
    from ..format import Format


@dataclass(frozen=True)
class Opened:
    """A prompt that ends inside a turn.

    `rendered` is the prompt; its text is `prompt`, which ends with the generation prompt, and `turn`, what the turn holds.
    """

    rendered: Rendered
    prompt: str
    turn: str


def continue_final_message(
    format: "Format", messages: Iterable[Mapping[str, Any] | Message], tools: Sequence[Tool] | None = None, **options: Any
) -> Opened:
    """Render a conversation and leave its last message, a turn of the assistant, open.

    Raises CodecError where the last message is no such turn or holds no text, and RenderError as `render` does.
    """
    if options.get("add_generation_prompt"):
        raise CodecError(f"{format.name}: a turn that is left open is not followed by a generation prompt")
    rendered = format.render(messages, tools=tools, **options)
    span = rendered.sampled_spans[-1] if rendered.sampled_spans else None
    wire = leave_open(format, rendered._wire, rendered._messages, 0)
    if span is None:
        raise CodecError(f"{format.name}: with these options no prompt leads to such a turn, so that it cannot be left open")
    opened = Rendered(format, wire, rendered._messages, rendered._tools, rendered._options)
    return Opened(opened, opened.text[: span[0]], opened.text[span[0] :])


def leave_open(format: "Format", wire: Wire, messages: Sequence[Mapping[str, Any]], known: int) -> Wire:
    """The wire up to the last text of its last message, with no sign in that message's pieces; `known` messages are not in it."""
    last = len(messages) - 1
    if last < known or messages[last]["role"] != "assistant":
        role = messages[last]["role"] if last >= known else "none"
        raise CodecError(f"{format.name}: only a turn of the assistant can be left open, not a message of role {role!r}")
    starts = [number for number in range(0, len(wire), 2) if wire[number] == last]
    start = starts[0] if starts else len(wire)
    texts = [number for number in range(start, len(wire), 2) if isinstance(wire[number], str) and wire[number] not in FORMATS_OWN]
    texts = [number for number in texts if wire[number + 1]]
    if not texts:
        raise CodecError(f"{format.name}: messages[{last - known}] holds no text that could be left open")
    turn = [item for number in range(start, texts[-1] + 2, 2) if wire[number] not in SIGNS for item in wire[number : number + 2]]
    return [*wire[:start], *turn]
