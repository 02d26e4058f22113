"""A format: one chat template in both directions.

Rules of this module:

* `Format` holds what a format's module declares, and turns calls from outside into work for the renderer, the machine and
  the assembler; it knows no format;
* only `CodecError`s leave it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import regex

from . import wire as w
from .assembler import Assembler, Refused
from .calls import HANDLERS
from .controls import ControlTokens
from .detokenizer import Detokenizer, vocabulary
from .errors import CodecError, Loss, ParseError, RenderError, nearest, parting
from .events import Event
from .grammar import compile_tables, markers
from .jsontext import half_at
from .machine import Machine
from .messages import Conversation, Door, Function, Message, Tool, admit
from .nodes import Node, build_nodes
from .prompt import Misfit, PromptReader, handlers
from .reply import FinishReason, Layout, Policy, Reply, Ways
from .sink import Unexpected
from .snapshot import load, restore
from .stream import IdStream, Stream
from .wire import Rendered, Wire

if TYPE_CHECKING:
    from .tokens.extending import Extended
    from .tokens.opened import Opened

POLICIES = ("strict", "recover", "raw")
FINISH_REASONS = ("stop", "tool_calls", "length")
_SHOWN = 24  #: characters of what a template would have written
_PROSE = 80  #: a marker longer than this is a paragraph of instructions
_TOKEN = regex.compile(r"<\|[^|<>]+\|>")
_OPENER = regex.compile(r"<\|[^|<>]+\Z")
_TAG = regex.compile(r"<\|[^|<>]*\|>|</?[A-Za-z][\w:.-]*[>=]?")


class Refuse(Protocol):
    """Raises the format's RenderError: where, which code, why, and the template's own words if it has any."""

    def __call__(self, path: str, code: str, detail: str, reason: str | None = None) -> NoReturn: ...


@dataclass(frozen=True, slots=True)
class Option:
    """A template option: the types its value may have, its default, values to choose from, if they are few.

    `passes_over`: the template takes any other value, and passes over what it does not know.
    """

    types: tuple[type, ...]
    default: Any
    description: str
    values: tuple[Any, ...] | None = None
    passes_over: bool = False


def _read_tools(text: str) -> list[dict[str, Any]]:
    """The tools of a section.  Whoever reads no TypeScript does not pay for what does."""
    from .typescript import read_declarations

    return read_declarations(text)


GENERATION_PROMPT = Option((bool,), False, "end with the opening of the next assistant turn")


@dataclass(frozen=True, eq=False, repr=False)
class Format:
    """One chat template: its declaration, and what can be done with it.

    `write(wire, messages, tools, options, refuse)` renders.  `starts` are the grammar's start rules by how a prompt ends.
    `generation_prompt(options)` is the text that opens the next assistant turn, with which a prompt may end.
    `notes` are the rules and aliases of the grammar that say something of the options, with the options that they stand for;
    `read(reader)` reads the others, and makes a conversation of a prompt.
    `losses(...)` names what the format's own text cannot give back.  `words` are the template's own words for refusals, by code.
    `parts` are the types of content parts that it takes, and `kind_of` tells what one is: text, or a kind of media.
    `declared(function)` is what a tool is declared as, in a format that declares tools in TypeScript.
    `result_names`: the text of a result has the name of its tool.  `tags` are the control tokens that are not spelt `<|…|>`.
    """

    name: str
    title: str
    options: Mapping[str, Option]
    write: Callable[[Wire, list[dict[str, Any]], Sequence[Tool], Mapping[str, Any], Refuse], None]
    generation_prompt: Callable[[Mapping[str, Any]], str]
    starts: tuple[tuple[str, str], ...]
    read: Callable[[PromptReader], tuple[list[dict[str, Any]], dict[str, Any]]]
    losses: Callable[[list[dict[str, Any]], Sequence[Tool], Mapping[str, Any]], Iterable[Loss]]
    notes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    declared: Callable[[Function], Function] | None = None
    parts: frozenset[str] = frozenset()
    kind_of: Callable[[Mapping[str, Any]], str | None] | None = None
    flat_calls: bool = False
    mixed_calls: bool = False
    layout: Mapping[str, Layout] = field(default_factory=dict)
    empty_reasoning: bool = False
    text_blocks: bool = False
    result_names: bool = False
    stop_ends_calls: bool = False
    words: Mapping[str, str] = field(default_factory=dict)
    reserved_in_names: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    _nodes: dict[Any, tuple[list[Node], int]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", {"add_generation_prompt": GENERATION_PROMPT, **self.options})

    def __repr__(self) -> str:
        return f"<chatcodec.Format {self.name}>"

    # -- rendering

    def render(self, messages: Iterable[Mapping[str, Any] | Message], tools: Sequence[Tool] | None = None, **options: Any) -> Rendered:
        """The text of the model's own chat template for these messages, tools and options.

        Raises RenderError for what the format cannot write, with the path of the place at fault.
        """
        chosen = self._options(options)
        admitted = admit(messages, self._door)
        self._functions(tools)
        declared = tools or ()
        wire: Wire = []
        try:
            self.write(wire, admitted, declared, chosen, self._refuse)
            if chosen["add_generation_prompt"]:
                wire += (w.OUTSIDE, "", w.ROLE, self.generation_prompt(chosen))
        except (RecursionError, ValueError, TypeError) as error:
            if isinstance(error, CodecError):
                raise
            self._refuse("messages", "bad_message", f"a value that JSON cannot hold: {error}")
        return Rendered(self, wire, admitted, declared, chosen)

    def _refuse(self, path: str, code: str, detail: str, reason: str | None = None) -> NoReturn:
        raise RenderError(self.name, path, code, detail, reason=reason or self.words.get(code)) from None

    @cached_property
    def _door(self) -> Door:
        return Door(self.parts, self.flat_calls, self.mixed_calls, self._refuse)

    @cached_property
    def _ways(self) -> Ways:
        return Ways(self.layout, empty_reasoning=self.empty_reasoning, text_blocks=self.text_blocks, stop_ends_calls=self.stop_ends_calls)

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        return {name: option.default for name, option in self.options.items()}

    def _options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        chosen = self._defaults.copy()
        for name, value in given.items():
            option = self.options.get(name)
            if option is None:
                known = ", ".join(self.options)
                self._refuse(
                    f"options.{name}", "unknown_option", f"unknown option {name!r}{nearest(name, self.options)}; there are {known}"
                )
            if not isinstance(value, option.types) or (isinstance(value, bool) and bool not in option.types):
                wanted = " or ".join("null" if kind is type(None) else kind.__name__ for kind in option.types)
                self._refuse(f"options.{name}", "bad_option", f"{name} must be {wanted}, not {value!r}")
            chosen[name] = value
        return chosen

    def _functions(self, tools: Sequence[Tool] | None) -> dict[str, Function] | None:
        """The functions of the tools by name, once they are checked; None where there are no tools."""
        if not tools:
            return None
        if type(tools) is not list and (not isinstance(tools, Sequence) or isinstance(tools, (str, bytes))):
            self._refuse("tools", "bad_tool", f"tools must be a list, not {type(tools).__name__}")
        functions = {}
        for index, tool in enumerate(tools):
            if type(tool) is not dict and not isinstance(tool, Mapping):
                self._refuse(f"tools[{index}]", "bad_tool", f"a tool must be an object, not {type(tool).__name__}")
            function = tool.get("function", tool)
            name = function.get("name") if type(function) is dict or isinstance(function, Mapping) else None
            if type(name) is not str or not name:
                self._refuse(f"tools[{index}]", "missing_tool_name", "a tool must have a function with a name")
            functions[name] = function
        return functions

    # -- parsing

    def parse(
        self,
        text: str,
        *,
        tools: Sequence[Tool] | None = None,
        prompt: Rendered | str | None = None,
        finish_reason: FinishReason | None = None,
        policy: Policy = "recover",
        infer_types: bool = False,
        **options: Any,
    ) -> Reply:
        """What a completion says.

        `tools` type the arguments; without them every argument is text, or with `infer_types` whatever JSON it is.
        `prompt` is what the completion continues, and tells in which state it starts; without it the options do.
        `finish_reason` is why the engine stopped.  Raises ParseError only for `policy="strict"`.
        """
        if type(text) is not str:
            self._check_text(text)
        sink, machine, _ = self._open(None, tools, prompt, policy, infer_types, options)
        return self._parsed(text, sink, machine, finish_reason)

    def _parsed(self, text: str, sink: Assembler, machine: Machine, finish_reason: FinishReason | None) -> Reply:
        if finish_reason is not None:
            sink.finish_reason = self._finish_reason(finish_reason)
        try:
            machine.feed(text, final=True)
            return sink.finish(len(text))
        except Refused as refused:
            raise self._refused(refused, text if sink.spell is None else sink.spell(text), sink) from None

    def parse_ids(
        self,
        ids: Iterable[int],
        tokenizer: Any,
        *,
        tools: Sequence[Tool] | None = None,
        prompt: Rendered | str | None = None,
        finish_reason: FinishReason | None = None,
        policy: Policy = "recover",
        infer_types: bool = False,
        **options: Any,
    ) -> Reply:
        """What a completion of token ids says; spans are offsets in the text of the ids, control tokens included.

        `tokenizer` is one of `tokenizers`, `transformers` or `tiktoken`, or any with the methods of `detokenizer.Tokenizer`.
        A control token of the format counts only as its own id: spelt in other tokens it is text.  Those that the tokenizer
        does not have count as text.  The other arguments are those of `parse`.
        """
        guards, detokenizer = self._detokenizer(tokenizer)
        text = detokenizer.feed(ids) + detokenizer.close()
        sink, machine, _ = self._open(None, tools, prompt, policy, infer_types, options, guards)
        return self._parsed(text, sink, machine, finish_reason)

    def _detokenizer(self, tokenizer: Any) -> tuple[ControlTokens, Detokenizer]:
        words = vocabulary(tokenizer)
        controls = words.controls(self.special_tokens, self._openers)
        guards = ControlTokens(controls.values())
        return guards, Detokenizer(words, controls, guards)

    def stream(
        self,
        *,
        tools: Sequence[Tool] | None = None,
        prompt: Rendered | str | None = None,
        policy: Policy = "recover",
        infer_types: bool = False,
        **options: Any,
    ) -> Stream:
        """A parse that is fed in pieces of any size.  The arguments are those of `parse`."""
        events: list[Event] = []
        sink, machine, start = self._open(events, tools, prompt, policy, infer_types, options)
        return Stream(self, start, sink, machine)

    def stream_ids(
        self,
        tokenizer: Any,
        *,
        tools: Sequence[Tool] | None = None,
        prompt: Rendered | str | None = None,
        policy: Policy = "recover",
        infer_types: bool = False,
        **options: Any,
    ) -> IdStream:
        """A parse that is fed with token ids.  The arguments are those of `parse_ids`."""
        guards, detokenizer = self._detokenizer(tokenizer)
        events: list[Event] = []
        sink, machine, start = self._open(events, tools, prompt, policy, infer_types, options, guards)
        return IdStream(Stream(self, start, sink, machine, guards), detokenizer)

    def resume(self, saved: str) -> Stream:
        """The stream whose `to_json` gave this text.  Raises CodecError where it is none of this format."""
        return self._resumed(load(saved), None)

    def resume_ids(self, saved: str, tokenizer: Any) -> IdStream:
        """The same for a stream of token ids, which goes on with its tokenizer."""
        guards, detokenizer = self._detokenizer(tokenizer)
        state = load(saved)
        stream = self._resumed(state, guards)
        detokenizer.restore(state["detokenizer"])
        return IdStream(stream, detokenizer)

    def _resumed(self, state: dict[str, Any], guards: ControlTokens | None) -> Stream:
        if state["format"] != self.name:
            raise CodecError(f"{self.name}: this stream is one of {state['format']}")
        if ("detokenizer" in state) != (guards is not None):
            kind = "text: `resume` goes on with it" if guards is not None else "token ids: `resume_ids` goes on with it"
            raise CodecError(f"{self.name}: this stream is one of {kind}")
        machine, sink = restore(state, self._ways, None if guards is None else guards.spell)
        machine.bind(self.nodes(state["start"], guards)[0])
        stream = Stream(self, state["start"], sink, machine, guards)
        stream._text = state["text"]
        return stream

    def _open(
        self,
        events: list[Event] | None,
        tools: Any,
        prompt: Any,
        policy: Policy,
        infer_types: bool,
        options: Mapping[str, Any],
        guards: ControlTokens | None = None,
    ) -> tuple[Assembler, Machine, str]:
        if policy not in POLICIES:
            raise CodecError(f"{self.name}: unknown policy {policy!r}{nearest(str(policy), POLICIES)}")
        if prompt is not None:
            ending = prompt.text if isinstance(prompt, Rendered) else prompt
            self._check_text(ending)
            start = self._start(ending)
        elif options:
            start = self._start(self.generation_prompt(self._options(options)))
        else:
            start = self._default_start
        nodes, depth = self.nodes(start, guards)
        sink = Assembler(self._ways, self._functions(tools), events, policy=policy, infer_types=infer_types)
        if guards is not None:
            sink.spell = guards.spell
        return sink, Machine(nodes, sink, depth), start

    def _start(self, ending: str) -> str:
        """The start rule of a completion by how its prompt ends."""
        return next((start for suffix, start in self.starts if ending.endswith(suffix)), self._default_start)

    @cached_property
    def _default_start(self) -> str:
        ending = self.generation_prompt(self._defaults)
        return next(start for suffix, start in self.starts if ending.endswith(suffix))

    def nodes(self, start: str, guards: ControlTokens | None = None) -> tuple[list[Node], int]:
        """The automaton of a start rule, compiled on its first use, and the depth of its stack.

        With `guards`, its markers are control tokens that were recognised by their ids.
        """
        key = start if guards is None else (start, guards.tokens)
        found = self._nodes.get(key)
        if found is None:
            tables = compile_tables(self.name, start, None if guards is None else guards.guard_all)
            functions = handlers(self.notes) if tables.strict else HANDLERS
            found = self._nodes[key] = build_nodes(tables, functions, None if guards is None else guards.spell), tables.depth
        return found

    def _check_text(self, text: Any) -> None:
        if not isinstance(text, str):
            raise CodecError(f"{self.name}: the text must be a string, not {type(text).__name__}")

    def _finish_reason(self, given: Any) -> Any:
        if given is not None and given not in FINISH_REASONS:
            raise CodecError(
                f"{self.name}: unknown finish_reason {given!r}{nearest(str(given), FINISH_REASONS)}; there are {', '.join(FINISH_REASONS)}"
            )
        return given

    def _refused(self, refused: Refused, text: str, sink: Assembler) -> ParseError:
        diagnostic = refused.diagnostic
        reason = diagnostic.code + (f" ({diagnostic.detail})" if diagnostic.detail else "")
        return ParseError(self.name, text, diagnostic.span[0], reason, diagnostics=[*sink.diagnostics, diagnostic])

    def parse_prompt(self, text: str) -> Conversation:
        """The messages, tools and options that render to this text.

        Raises ParseError where there are none: where the text is no prompt of the format, or is one that reads as a conversation
        which the template writes otherwise.
        """
        self._check_text(text)
        if (place := half_at(text)) is not None:
            raise ParseError(self.name, text, place, "half of a surrogate pair, which is no text")
        nodes, depth = self.nodes("prompt")
        reader = self._prompt_reader()
        try:
            Machine(nodes, reader, depth).feed(text, final=True)
            messages, options = self.read(reader)
        except Unexpected as error:
            raise ParseError(self.name, text, error.position, "this does not belong in a prompt", expected=error.expected) from None
        except Misfit as error:
            raise ParseError(self.name, text, error.position, error.reason) from None
        self._check_undone(text, messages, reader.tools, options)
        return Conversation.model_validate({"messages": messages, "tools": reader.tools or None, "options": options})

    def _check_undone(self, text: str, messages: list[dict[str, Any]], tools: list[Any], options: Mapping[str, Any]) -> None:
        """Rendering is the inverse of reading, or what was read is not what the text says."""
        try:
            written = self.render(messages, tools, **options).text
        except RenderError as error:
            raise ParseError(self.name, text, 0, f"no template writes what this says: {error.path}: {error.detail}") from None
        if written != text:
            place = parting(text, written)
            raise ParseError(self.name, text, place, "the template writes this otherwise", expected=(written[place : place + _SHOWN],))

    def _prompt_reader(self) -> PromptReader:
        ways = Ways({}, empty_reasoning=self.empty_reasoning, text_blocks=self.text_blocks)
        return PromptReader(ways, self.notes, read_tools=None if self.declared is None else _read_tools)

    @cached_property
    def special_tokens(self) -> tuple[str, ...]:
        """The control tokens of the format, sorted: what the model's tokenizer has a token of its own for."""
        found = {token for text in markers(self.name).values() for token in _TOKEN.findall(text)}
        return tuple(sorted(found.union(self.tags)))

    # -- tokens

    def extend(self, previous: str | Sequence[int], new_messages: Iterable[Mapping[str, Any] | Message], **given: Any) -> "Extended":
        """The prompt that goes on where a model stopped; see `tokens.extending.extend`."""
        from .tokens.extending import extend

        return extend(self, previous, new_messages, **given)

    def continue_final_message(
        self, messages: Iterable[Mapping[str, Any] | Message], tools: Sequence[Tool] | None = None, **options: Any
    ) -> "Opened":
        """Render a conversation whose last turn is left open; see `tokens.opened.continue_final_message`."""
        from .tokens.opened import continue_final_message

        return continue_final_message(self, messages, tools, **options)

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The strings that end a turn of the model."""
        from .tokens.stops import stop_strings

        return stop_strings(self)

    def stop_tokens(self, tokenizer: Any) -> list[int]:
        """The ids of the tokens that end a turn of the model.  Raises CodecError for a tokenizer that lacks one."""
        from .tokens.stops import stop_tokens

        return stop_tokens(self, tokenizer)

    @cached_property
    def _openers(self) -> tuple[str, ...]:
        """Markers that only begin a control token, whichever it is."""
        return tuple(text for text in markers(self.name).values() if _OPENER.search(text))

    @cached_property
    def control_search(self) -> Callable[[str], Any]:
        """Finds a string that a reader of this format may take for a marker, wherever it stands."""
        tags = {tag for text in markers(self.name).values() if len(text) < _PROSE for tag in _TAG.findall(text)}
        found: Callable[[str], Any] = regex.compile("|".join(map(regex.escape, sorted(tags)))).search
        return found
