"""A chat template of the user's own, run as Hugging Face transformers runs it.

Rules of this module:

* the environment is that of `apply_chat_template`: an immutable sandbox, `trim_blocks` and `lstrip_blocks`, loop controls, the
  `{% generation %}` tag, a `tojson` that escapes nothing, `raise_exception` and `strftime_now`;
* before the template sees a message, null keys are dropped and reasoning is known by each of its names; arguments as JSON text
  are decoded first, as this library does at its own door;
* a template is another's program: its errors are an outcome and not ours, and it may not run or write without end;
* jinja2 is imported when a template is compiled, and its absence is a CodecError that names the extra.
"""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import CodecError, nearest
from ..messages import REASONING_KEYS, TEXT_PART_TYPES, Message, Tool

SECONDS = 10.0  #: that a template may take for one conversation
MOST_WRITTEN = 1 << 27  #: characters that it may write
TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
DEFAULT, WITH_TOOLS = "default", "tool_use"  #: the names that transformers takes a template by

#: What runs at the moment: the clock, how much was written, and the spans of the generation tag.
_run: ContextVar["_Run"] = ContextVar("run")


class Written(NamedTuple):
    """What a template makes of a conversation: the text, and what its generation tags cover."""

    text: str
    generation_spans: list[tuple[int, int]]


class Refused(NamedTuple):
    """That a template raises: its words, and whether it does so on purpose (`raise_exception`)."""

    reason: str
    deliberate: bool


@dataclass(frozen=True, slots=True)
class Sources:
    """Templates out of a file or a model's directory by their names, and the special tokens that they may name."""

    origin: str
    templates: dict[str, str]
    variables: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Run:
    now: date | None
    written: int = 0
    spans: list[tuple[int, int]] = field(default_factory=list)


# -------------------------------------------------------------------------------------------------------------- where from


def read_templates(path: str) -> Sources:
    """The templates of a `.jinja` file, a `tokenizer_config.json` or `chat_template.json`, or a model's directory.

    Raises CodecError where there is none.
    """
    place = Path(path)
    if not place.is_dir():
        return _of_file(place)
    found: dict[str, str] = {}
    for name in ("tokenizer_config.json", "chat_template.json", "chat_template.jinja"):  # what comes later counts
        if (place / name).is_file():
            found |= _named(place / name, needed=False)
    for extra in sorted((place / "additional_chat_templates").glob("*.jinja")):
        found[extra.stem] = _text(extra)
    if not found:
        raise CodecError(f"{path!r}: there is no chat template in the directory")
    config = place / "tokenizer_config.json"
    return Sources(path, found, _tokens(_json(config)) if config.is_file() else {})


def _of_file(place: Path) -> Sources:
    given = _named(place)
    return Sources(str(place), given, _tokens(_json(place)) if place.suffix == ".json" else {})


def _named(place: Path, *, needed: bool = True) -> dict[str, str]:
    if place.suffix != ".json":
        return {DEFAULT: _text(place)}
    config = _json(place)
    given = config.get("chat_template") if isinstance(config, dict) else None
    if isinstance(given, str):
        return {DEFAULT: given}
    if isinstance(given, list):
        given = {str(each.get("name")): each.get("template") for each in given if isinstance(each, dict)}
    if isinstance(given, dict) and given and all(isinstance(source, str) for source in given.values()):
        return given
    if given is None and not needed:
        return {}
    raise CodecError(f"{str(place)!r}: chat_template must be a text, or a list of names and templates")


def _tokens(config: Any) -> dict[str, Any]:
    """The special tokens, which transformers gives to a template as variables."""
    found = {}
    for name in TOKENS:
        token = config.get(name) if isinstance(config, dict) else None
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            found[name] = token
    return found


def _json(place: Path) -> Any:
    try:
        return json.loads(_text(place))
    except (ValueError, RecursionError) as error:
        raise CodecError(f"{str(place)!r}: invalid JSON: {error}") from None


def _text(place: Path) -> str:
    try:
        return place.read_bytes().decode("utf-8")
    except OSError as error:
        raise CodecError(f"{str(place)!r}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise CodecError(f"{str(place)!r}: invalid UTF-8 at byte {error.start}: {error.reason}") from None


# ------------------------------------------------------------------------------------------------------------------ running


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """Compiled templates of one model; `render` picks the one for the conversation."""

    origin: str
    compiled: Mapping[str, Any]
    variables: Mapping[str, Any]
    tracks: bool  #: whether there is a generation tag

    def render(
        self, messages: Sequence[Any], tools: Sequence[Tool] | None = None, *, now: date | None = None, **variables: Any
    ) -> Written | Refused:
        """The text for messages that are as `prepared` makes them, or why there is none.  `now` is what the clock shows."""
        name = WITH_TOOLS if tools and WITH_TOOLS in self.compiled else DEFAULT
        given = {"documents": None, "add_generation_prompt": False, **self.variables, **variables}
        run = _Run(now)
        token = _run.set(run)
        pieces: list[str] = []
        try:
            with _time_limit():
                started = time.monotonic()
                for piece in self.compiled[name].generate(messages=list(messages), tools=tools or None, **given):
                    pieces.append(piece)
                    run.written += len(piece)
                    if run.written > MOST_WRITTEN or time.monotonic() - started > SECONDS:
                        return Refused(f"the template was stopped after {run.written:,} characters", False)
        except _TooLong:
            return Refused(f"the template was stopped after {SECONDS:g} seconds", False)
        except Exception as error:  # another's program may raise anything
            return Refused(str(error) or type(error).__name__, type(error).__name__ == "TemplateError")
        finally:
            _run.reset(token)
        return Written("".join(pieces), run.spans)


def compile_template(sources: Sources, name: str | None = None) -> ChatTemplate:
    """Compile a model's templates; with `name` only that one, for all conversations.  Raises CodecError for a faulty one."""
    chosen = sources.templates
    if name is not None:
        if name not in chosen:
            raise CodecError(f"{sources.origin!r}: no template {name!r}{nearest(name, chosen)}; there are {', '.join(sorted(chosen))}")
        chosen = {DEFAULT: chosen[name]}
    elif DEFAULT not in chosen:
        raise CodecError(f"{sources.origin!r}: there is no default template; choose one of {', '.join(sorted(chosen))}")
    environment, faults = _environment()
    compiled = {}
    for each in (DEFAULT, WITH_TOOLS):
        if each in chosen:
            try:
                compiled[each] = environment.from_string(chosen[each])
            except faults as error:
                line = getattr(error, "lineno", None)
                raise CodecError(f"{sources.origin!r}: the template is faulty: {f'line {line}: ' if line else ''}{error}") from None
    return ChatTemplate(sources.origin, compiled, sources.variables, any("endgeneration" in chosen[each] for each in compiled))


def _environment() -> tuple[Any, tuple[type[Exception], ...]]:
    """The environment of transformers, and what a faulty template raises when it is compiled."""
    try:
        from jinja2 import TemplateError, TemplateSyntaxError, nodes
        from jinja2.ext import Extension, loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise CodecError('jinja2 is needed to run a template and is not installed: pip install "chatcodec[verify]"') from None

    class Generation(Extension):
        """The block whose output the model generated."""

        tags = {"generation"}  # noqa: RUF012  # jinja2 declares it so

        def parse(self, parser: Any) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_tracked"), [], [], body).set_lineno(line)

        def _tracked(self, caller: Callable[[], str]) -> str:
            text = caller()
            run = _run.get()
            run.spans.append((run.written, run.written + len(text)))
            return text

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals.update(raise_exception=raise_exception, strftime_now=_strftime_now)
    return environment, (TemplateSyntaxError, RecursionError, SyntaxError)


def _tojson(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(form: str) -> str:
    return (_run.get().now or datetime.now()).strftime(form)


class _TooLong(BaseException):
    """The time is up; no error, so that no template can catch it."""


@contextmanager
def _time_limit() -> Iterator[None]:
    """Stop a template that runs too long, where the system has timers; elsewhere it is stopped at its next piece of text."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ---------------------------------------------------------------------------------------------------------------- messages


def prepared(messages: Sequence[Any], *, text_only: bool) -> list[Any]:
    """Messages as a template gets them: what `apply_chat_template` changes, and what this library puts right at its door.

    `text_only`: the format knows only text, so that a list of text parts is one text.
    """
    return [_prepared(message.model_dump() if isinstance(message, Message) else message, text_only) for message in messages]


def _prepared(message: Any, text_only: bool) -> Any:
    if not isinstance(message, Mapping):
        return message
    made = {key: value for key, value in message.items() if value is not None}
    calls, content = made.get("tool_calls"), made.get("content")
    if isinstance(calls, list):
        made["tool_calls"] = [_call(call) for call in calls]
    if text_only and isinstance(content, list) and all(map(_is_text, content)):
        made["content"] = "".join(part["text"] for part in content)
    reasoning = next((made[key] for key in ("reasoning_content", *REASONING_KEYS) if key in made), None)
    if reasoning is not None:
        made.setdefault("thinking", reasoning)
        made["reasoning_content"] = reasoning
    return made


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in TEXT_PART_TYPES and isinstance(part.get("text"), str)


def _call(call: Any) -> Any:
    if not isinstance(call, Mapping):
        return call
    if isinstance(call.get("function"), Mapping):
        return {**call, "function": _decoded(call["function"])}
    return _decoded(call)


def _decoded(function: Mapping[str, Any]) -> Any:
    given = function.get("arguments", {})
    try:
        arguments = {} if given is None else json.loads(given) if isinstance(given, str) and given else given
    except (ValueError, RecursionError):
        return function
    return {**function, "arguments": arguments} if isinstance(arguments, dict) else function
