"""The next prompt of a rollout: exactly what was sent and sampled, and then what is new.

Rules of this module:

* nothing that was sent or sampled is rendered again: the next prompt begins with it, to the character and to the token;
* what is new is the difference of two renderings that end alike: one with the new messages and one without, of which the
  first must begin with the second.  They are of the conversation that the text reads back as or, where the model wrote it
  otherwise than the template would, of a stand-in with the same last turn;
* where new messages change earlier text, there is no such prompt, and that is said;
* a turn that was cut off is closed by the format's grammar (`closing`); what closes it was not sampled.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import CodecError, Loss, ParseError, RenderError, parting
from ..messages import Message, Tool
from ..wire import CONTROL, OUTSIDE, SIGNS, Rendered, Wire
from .closing import closing_of_completion, closing_of_prompt
from .encoding import encode
from .opened import leave_open
from .stops import stop_strings
from .tokenizer import adapt

if TYPE_CHECKING:
    from ..format import Format

Messages = Sequence[Mapping[str, Any] | Message]


@dataclass(frozen=True)
class Extended:
    """The next prompt.

    `text` is all of it and `ids` its tokens, if token ids were extended.  `added` is what is new in it, none of it sampled;
    messages in its spans are numbered as the new ones were given.  `added_ids` are its tokens, if there was a tokenizer.
    `closing` is the beginning of `added` that closes the last turn, and `losses` is what the new text cannot give back.
    """

    text: str
    ids: list[int] | None
    added: Rendered
    added_ids: list[int] | None
    closing: str
    losses: list[Loss]

    def __str__(self) -> str:
        return self.text


def extend(
    format: "Format",
    previous: str | Sequence[int],
    new_messages: Iterable[Mapping[str, Any] | Message],
    *,
    tools: Sequence[Tool] | None = None,
    tokenizer: Any = None,
    turn: Mapping[str, Any] | Message | None = None,
    truncated: bool | None = None,
    continue_final_message: bool = False,
    allow_missing: bool = False,
    **options: Any,
) -> Extended:
    """The prompt that goes on where a model stopped.

    `previous` is the last prompt and what the model made of it, as text or, with a `tokenizer`, as token ids.  Results
    answer the last turn's calls in order; `turn`, that turn as a message, tells their ids where the order is another.
    `truncated` tells whether the turn was cut off: True has it closed, False refuses one that lacks more than its stop
    string, and by default it is closed if it has to be.  `continue_final_message` leaves the last of the new messages, one
    of the assistant, open.  The options are the template's; those that the text itself shows need not be given.

    Raises CodecError where the format cannot go on from exactly this text, and RenderError for messages it cannot write.
    """
    text, before = _given(format, previous, tokenizer)
    new: Messages = list(new_messages)
    options.setdefault("add_generation_prompt", not continue_final_message)
    if continue_final_message and options["add_generation_prompt"]:
        raise CodecError(f"{format.name}: a turn that is left open is not followed by a generation prompt")
    closing, wire, rendered, known = _canonical(format, text, new, turn, options) or _stand_in(format, text, new, tools, turn, options)
    if truncated is False and closing.strip() and not closing.startswith(stop_strings(format)):
        raise CodecError(f"{format.name}: the last turn is not finished, it lacks {closing!r}; truncated=True closes it with that")
    if continue_final_message:
        wire = leave_open(format, wire, rendered._messages, known)
    added = Rendered(
        format, [OUTSIDE, "", CONTROL, closing, *_renumbered(wire, known)], rendered._messages[known:], rendered._tools, rendered._options
    )
    added_ids = None if tokenizer is None else encode(added, tokenizer, allow_missing=allow_missing).ids
    ids = None if before is None or added_ids is None else before + added_ids
    return Extended(text + added.text, ids, added, added_ids, closing, _losses(rendered, known))


def _given(format: "Format", previous: Any, tokenizer: Any) -> tuple[str, list[int] | None]:
    if isinstance(previous, str):
        return previous, None
    if isinstance(previous, (bytes, Mapping)) or not isinstance(previous, Iterable):
        raise CodecError(f"{format.name}: what came before must be text or token ids, not {type(previous).__name__}")
    ids = list(previous)
    if tokenizer is None:
        raise CodecError(f"{format.name}: token ids are extended with their tokenizer; give it as tokenizer=")
    if not all(isinstance(token, int) and not isinstance(token, bool) and token >= 0 for token in ids):
        raise CodecError(f"{format.name}: token ids must be integers from 0 up")
    try:
        return adapt(tokenizer).decode(ids), ids
    except CodecError:
        raise
    except Exception as error:  # an id that it does not have: each library has its own error for that
        raise CodecError(f"{format.name}: the tokenizer cannot decode these ids: {error}") from None


# ----------------------------------------------------------------------------------------------- what the new text is

Found = tuple[str, Wire, Rendered, int]
"""What closes the last turn, the pieces of the new text, the rendering they are of, and how many of its messages are not new."""


def _canonical(format: "Format", text: str, new: Messages, turn: Any, options: Mapping[str, Any]) -> Found | None:
    """From the conversation that the text reads back as; None where that does not render to this text."""
    closing = "" if _ended(format, text) else closing_of_prompt(format, text)
    if closing is None:
        return None
    closed = text + closing
    try:
        read = format.parse_prompt(closed)
    except ParseError:
        return None
    messages = [message.model_dump() for message in read.messages]
    if not messages or messages[-1]["role"] != "assistant":
        return None  # no turn is at the end, or a forged marker before it hides it
    _name_calls(format, messages[-1], new, turn)
    given = {**read.options, **options}
    try:
        again = format.render(messages, tools=read.tools, **{**given, "add_generation_prompt": False}).text
    except RenderError:
        return None  # the model wrote what the template would refuse
    if again != closed:
        return None
    rendered = _rendered(format, messages, new, read.tools, given)
    if rendered.text.startswith(closed):
        return closing, _behind(rendered._wire, len(closed)), rendered, len(messages)
    raise _changed(format, closed, rendered.text)


def _ended(format: "Format", text: str) -> bool:
    """Whether the text is a whole prompt in which no turn is open."""
    try:
        return not format.parse_prompt(text).options.get("add_generation_prompt")
    except ParseError:
        return False


def _stand_in(format: "Format", text: str, new: Messages, tools: Sequence[Tool] | None, turn: Any, options: Mapping[str, Any]) -> Found:
    """From a short conversation whose last turn makes the calls that this one makes."""
    prompt, completion = _last_turn(format, text)
    reply = format.parse(completion, tools=tools, prompt=prompt)
    names = [call.name for call in reply.message.tool_calls] or ([reply.partial.name] if reply.partial and reply.partial.name else [])
    made = [{"id": "", "type": "function", "function": {"name": name, "arguments": {}}} for name in names]
    last: dict[str, Any] = {"role": "assistant", "reasoning_content": "?", "content": None if made else "?"}
    if made:
        last["tool_calls"] = made
    _name_calls(format, last, new, turn)
    asked = {"role": "user", "content": "?"}
    shown = [dict(message) for message in new if isinstance(message, Mapping) and not isinstance(message.get("content"), str | None)]
    media = [message for message in shown if message.get("role") == "user"]
    found: list[tuple[str, Wire, Rendered, int]] = []
    for earlier in ([asked], [asked, *media]) if media else ([asked],):
        base = format.render([*earlier, last], **{**options, "add_generation_prompt": False})
        rendered = _rendered(format, [*earlier, last], new, None, options)
        if not rendered.text.startswith(base.text):
            raise _changed(format, base.text, rendered.text)
        turn_end, stop = max((base.text.rfind(stop) + len(stop), stop) for stop in stop_strings(format))
        tail = base.text[turn_end:]
        ended = completion.removesuffix(tail)
        closing = closing_of_completion(format, ended, prompt, stop) + tail[len(completion) - len(ended) :]
        found.append((closing, _behind(rendered._wire, len(base.text)), rendered, len(earlier) + 1))
    if len({"".join(wire[1::2]) for _, wire, _, _ in found}) > 1:
        raise CodecError(f"{format.name}: the text of the new messages depends on how many images and videos came before; render the whole")
    return found[0]


def _rendered(format: "Format", messages: list[dict[str, Any]], new: Messages, tools: Any, options: Mapping[str, Any]) -> Rendered:
    """Render with the new messages; where one of them is at fault, its path is numbered as it was given."""
    try:
        return format.render([*messages, *new], tools=tools, **options)
    except RenderError as error:
        path = _moved(error.path, len(messages))
        if path is None:
            raise
        raise RenderError(error.format, path, error.code, error.detail, reason=error.reason) from None


def _last_turn(format: "Format", text: str) -> tuple[str, str]:
    """A text cut behind the generation prompt of its last turn: the first one behind the stop string of the turn before."""
    stops = stop_strings(format)
    body = text.rstrip()
    for stop in stops:
        body = body.removesuffix(stop)
    ended = max((at + len(stop) for stop in stops if (at := body.rfind(stop)) >= 0), default=0)
    places = [(at, -len(opening)) for opening, _ in format.starts if (at := text.find(opening, ended)) >= 0]
    if not places:
        reason = "behind the last stop string there is no generation prompt"
        raise CodecError(f"{format.name}: the text does not end with a turn of the model: {reason}")
    at, size = min(places)
    return text[: at - size], text[at - size :]


def _name_calls(format: "Format", message: dict[str, Any], new: Messages, turn: Any) -> None:
    """Give the last turn's calls the ids that results answer them by: those of `turn`, else those of the results, in order."""
    calls = message.get("tool_calls") or []
    if turn is not None:
        given = Message.model_validate(turn if isinstance(turn, Message) else dict(turn)).tool_calls
        if [call.name for call in given] != [call["function"]["name"] for call in calls]:
            wrote = ", ".join(call["function"]["name"] for call in calls) or "none"
            raise CodecError(f"{format.name}: turn has other calls than the text, which has {wrote}")
        ids = [call.id for call in given]
    else:
        results = [dict(one) for one in new if (one.role if isinstance(one, Message) else one.get("role")) == "tool"]
        ids = list(dict.fromkeys(result.get("tool_call_id") for result in results if result.get("tool_call_id")))
    for number, call in enumerate(calls):
        call["id"] = (ids[number] if number < len(ids) else None) or f"unanswered_{number}"


def _changed(format: "Format", before: str, after: str) -> CodecError:
    place = parting(before, after)
    was, would = before[place : place + 40], after[place : place + 40]
    return CodecError(
        f"{format.name}: this cannot be extended exactly, since with the new messages the template writes earlier text anew: "
        f"at character {place}, {was!r} becomes {would!r}; render the whole"
    )


# ------------------------------------------------------------------------------------------------------------- pieces


def _behind(wire: Wire, position: int) -> Wire:
    """The pieces of a wire that stand behind a position."""
    done = 0
    for number in range(0, len(wire), 2):
        text = wire[number + 1]
        if done + len(text) > position:
            return [*wire[number : number + 1], text[position - done :], *wire[number + 2 :]]
        done += len(text)
        if done == position and text:
            return list(wire[number + 2 :])
    return []


def _renumbered(wire: Wire, known: int) -> Wire:
    """Messages numbered from the first new one; what is of earlier ones is of none, and signs that close blocks of theirs are gone."""
    numbered: Wire = []
    new = False
    for kind, text in zip(wire[::2], wire[1::2], strict=True):
        if isinstance(kind, int) and kind >= 0:
            new = kind >= known
            numbered += (kind - known if new else OUTSIDE, text)
        elif new or kind not in SIGNS:
            numbered += (kind, text)
    return numbered


def _losses(rendered: Rendered, known: int) -> list[Loss]:
    """The losses of the new messages, their paths numbered as they were given."""
    moved = [(loss, _moved(loss.path, known)) for loss in rendered.losses]
    return [loss._replace(path=path) for loss, path in moved if path is not None]


def _moved(path: str, known: int) -> str | None:
    """The path of something in the new messages, numbered as they were given; None for anything else."""
    number, bracket, rest = path.removeprefix("messages[").partition("]")
    if not (bracket and path.startswith("messages[") and number.isdecimal() and int(number) >= known):
        return None
    return f"messages[{int(number) - known}]{rest}"
