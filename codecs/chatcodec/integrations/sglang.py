"""Function call and reasoning detectors for SGLang, one of each for every format, named `chatcodec_` and the format's name.

    sglang serve --model-path MODEL --tool-call-parser chatcodec_qwen3_5 --reasoning-parser chatcodec_qwen3_5

SGLang loads them by the entry point `sglang.srt.plugins`; where that is not to be, import this module before SGLang reads its
arguments.

Rules of this module:

* it imports SGLang, and importing it registers the detectors;
* both detectors are of the kind that SGLang calls response templates, since those alone are given the rendered prompt, have
  special tokens left in their text, and keep the stop token that ends a call; of what that kind does nothing else is used;
* with both, the reasoning detector reads the completion with one `Answer`, and the content that it hands on carries the calls
  that were read beside it (`Read`) to the function call detector; a function call detector that is given any other text reads
  it itself, reasoning before the content;
* a call of an unknown tool is left out, unless SGLang is told to forward those;
* `tool_choice` "required" or a named tool is read in the model's own format, like "auto", not forced by a grammar;
* SGLang does not tell a detector why the model stopped: only a stop token that was seen means a normal end.
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from ..errors import CodecError
from ..formats import get_format, list_formats
from .opening import functions_of, marks
from .serving import PREFIX, Answer, BareAnswer, CallDelta, Delta, log, read_whole

try:
    from sglang.srt.environ import envs
    from sglang.srt.function_call.base_format_detector import BaseFormatDetector
    from sglang.srt.function_call.core_types import StreamingParseResult, ToolCallItem
    from sglang.srt.function_call.function_call_parser import FunctionCallParser
    from sglang.srt.parser.reasoning_parser import ReasoningParser
    from sglang.srt.parser.reasoning_parser import StreamingParseResult as ReasoningResult
    from sglang.srt.parser.response_template import (
        GRAMMAR_FROM_START,
        ResponseTemplateReasoningDetector,
        ResponseTemplateToolDetector,
    )
except ImportError as error:
    raise CodecError(f"chatcodec.integrations.sglang needs SGLang 0.5.23 or newer (pip install sglang): {error}") from error


class Read(str):
    """Content that carries the calls that were read beside it, and counts as something if there is either."""

    calls: list[CallDelta]

    def __new__(cls, content: str, calls: Iterable[CallDelta] = ()) -> "Read":
        """Content and calls of one step, or of a whole completion."""
        made = super().__new__(cls, content)
        made.calls = list(calls)
        return made

    def __bool__(self) -> bool:
        return len(self) > 0 or bool(self.calls)

    def __add__(self, later: str) -> "Read":
        return Read(str.__add__(self, later), [*self.calls, *getattr(later, "calls", ())])

    def __radd__(self, earlier: str) -> "Read":
        return Read(str.__add__(earlier, self), [*getattr(earlier, "calls", ()), *self.calls])


class CodecReasoningDetector(ResponseTemplateReasoningDetector):  # type: ignore[misc]
    """Tells reasoning from the rest of a completion in the format of `format_name`."""

    format_name: ClassVar[str]

    def __init__(
        self,
        stream_reasoning: bool = True,
        tokenizer: Any = None,
        prefix: str = "",
        force_nonempty_content: bool = False,
        grammar_start: str | None = None,
        tools: Sequence[Any] | None = None,
        tool_call_parser_active: bool = False,
        **_: Any,
    ) -> None:
        # no super().__init__: it reads a response template, and there is none
        self.fmt = get_format(self.format_name)
        self.stream_reasoning, self._force_nonempty_content = stream_reasoning, force_nonempty_content
        self._prefix, self._grammar_start, self._tools = prefix, grammar_start, tools
        self._active = tool_call_parser_active
        self._answer: Answer | BareAnswer | None = None
        self._waiting: list[str] = []  #: reasoning that is told when it is over
        self._spoke = False  #: there is content, or a call
        found = marks(self.fmt)
        self.think_start_token, self.think_end_token = found.start, found.end
        self.think_start_self_label, self.think_excluded_tokens = "", None
        self.message_start_think_openers: list[str] = []
        self.answer_started = False

    def _begin(self) -> Answer | BareAnswer:
        if self._grammar_start is not None:
            return BareAnswer(self.fmt, prompt=self._prefix, from_start=self._grammar_start == GRAMMAR_FROM_START)
        return Answer(self.fmt, tools=functions_of(self._tools), prompt=self._prefix, calls=self._active)

    # -- what SGLang's own response templates know of their framing, and constrain by it

    def starts_message(self, prefix: str) -> bool:
        """No grammar of ours covers a message from its start."""
        return False

    def answer_opener(self, prefix: str) -> str:
        """A continued message is continued as its template wrote it."""
        return ""

    def json_output_started(self, text: str) -> bool:
        """Whether a completion reached the content that a grammar holds to a schema."""
        return self._grammar_start == GRAMMAR_FROM_START or self.think_end_token in text

    # -- the completion

    def detect_and_parse(self, text: str) -> Any:
        """Reasoning and content of a whole completion; the content carries the calls."""
        whole = read_whole(self._begin(), text)
        reasoning, content = whole.reasoning, whole.content
        if self._force_nonempty_content and not content and not whole.calls:
            reasoning, content = "", reasoning
        return self._result(reasoning, content, whole.calls)

    def parse_streaming_increment(self, new_text: str) -> Any:
        """What is new."""
        if self._answer is None:
            self._answer = self._begin()
        return self._tell(self._answer.feed(new_text), over=False)

    def finish(self) -> Any:
        """What was held back until the completion is over."""
        if self._answer is None:
            return ReasoningResult()
        delta = self._answer.close()
        if self._force_nonempty_content and not (self._spoke or delta.content or delta.calls):
            self._waiting = []
            return self._result("", self._answer.reasoning, [])
        return self._tell(delta, over=True)

    def _tell(self, delta: Delta, *, over: bool) -> Any:
        self._spoke = self._spoke or bool(delta.content or delta.calls)
        reasoning = delta.reasoning
        if not self.stream_reasoning:
            self._waiting.append(reasoning)
            reasoning = ""
            if over or self._spoke:
                reasoning, self._waiting = "".join(self._waiting), []
        return self._result(reasoning, delta.content, delta.calls)

    def _result(self, reasoning: str, content: str, calls: list[CallDelta]) -> Any:
        return ReasoningResult(normal_text=Read(content, calls) if self._active else content, reasoning_text=reasoning)


class CodecToolDetector(ResponseTemplateToolDetector):  # type: ignore[misc]
    """Reads the calls of a completion in the format of `format_name`."""

    format_name: ClassVar[str]

    def __init__(self, tokenizer: Any = None, prefix: str = "", tools: Sequence[Any] | None = None, constrained: bool = False) -> None:
        # not that of ResponseTemplateToolDetector: it reads a response template, and there is none
        BaseFormatDetector.__init__(self)
        self.fmt = get_format(self.format_name)
        self._prefix, self._tools, self._constrained = prefix, tools, constrained
        self.tool_close_literals = list(marks(self.fmt).stops)
        self.incomplete_tool_call_indices: set[int] = set()
        self._answer: Answer | None = None
        self._numbers: dict[int, int] = {}  #: the reader's number of a call, and the one that it is told under

    def parses_required_natively(self) -> bool:
        """Calls come in the model's format for every tool_choice."""
        return True

    def open_call_closer(self, text: str) -> str | None:
        """No grammar of ours leaves a call open."""
        return None

    def has_tool_call(self, text: str) -> bool:
        """Whether there is anything here to take out of a whole completion: calls, or the format's frames."""
        if isinstance(text, Read):
            return bool(text.calls)
        whole = self._read(text, self._tools or ())
        return bool(whole.calls) or whole != text

    def detect_and_parse(self, text: str, tools: Sequence[Any]) -> Any:
        """Content and finished calls of a whole completion."""
        whole = text if isinstance(text, Read) else self._read(text, tools)
        known = _known(tools)
        calls = [call for call in whole.calls if known is None or _is_known(call.name, known)]
        items = [ToolCallItem(tool_index=index, name=call.name, parameters=call.arguments) for index, call in enumerate(calls)]
        return StreamingParseResult(normal_text=str(whole), calls=items)

    def _read(self, text: str, tools: Sequence[Any]) -> Read:
        whole = read_whole(Answer(self.fmt, tools=functions_of(tools), prompt=self._prefix, apart=False), text)
        return Read(whole.content, whole.calls)

    def parse_streaming_increment(self, new_text: str, tools: Sequence[Any]) -> Any:
        """What is new."""
        if isinstance(new_text, Read):
            return self._tell(str(new_text), new_text.calls, tools)
        if not new_text:
            return StreamingParseResult()
        if self._answer is None:
            self._answer = Answer(self.fmt, tools=functions_of(tools), prompt=self._prefix, apart=False)
        delta = self._answer.feed(new_text)
        return self._tell(delta.content, delta.calls, tools)

    def finish(self, tools: Sequence[Any]) -> Any:
        """What was held back until the completion is over."""
        if self._answer is None:
            return StreamingParseResult()
        delta = self._answer.close()
        return self._tell(delta.content, delta.calls, tools)

    def _tell(self, content: str, calls: list[CallDelta], tools: Sequence[Any]) -> Any:
        known = _known(tools)
        items = []
        for call in calls:
            if call.name is not None and (known is None or _is_known(call.name, known)):
                self._numbers[call.index] = len(self._numbers)
                self.incomplete_tool_call_indices.add(self._numbers[call.index])
            number = self._numbers.get(call.index)
            if number is None:
                continue
            if call.finished:
                self.incomplete_tool_call_indices.discard(number)
            if call.name is not None or call.arguments:
                items.append(ToolCallItem(tool_index=number, name=call.name, parameters=call.arguments))
        return StreamingParseResult(normal_text=content, calls=items)


def _known(tools: Sequence[Any]) -> frozenset[str] | None:
    """The names of the tools that may be called, None for any."""
    if envs.SGLANG_FORWARD_UNKNOWN_TOOLS.get():
        return None
    return frozenset(str((tool.get("function") or tool)["name"]) for tool in functions_of(tools))


def _is_known(name: str | None, known: frozenset[str]) -> bool:
    if name not in known:
        log.warning("the model called a tool that there is not; the call is left out")
    return name in known


def register() -> list[str]:
    """Register the detectors of every format; gives their names."""
    names = []
    for format_name in list_formats():
        name = PREFIX + format_name
        default = "enable_thinking" if "enable_thinking" in get_format(format_name).options else "always"
        said = {"format_name": format_name, "__module__": __name__}
        ReasoningParser.DetectorMap[name] = type(f"{name}_reasoning", (CodecReasoningDetector,), {**said, "reasoning_default": default})
        FunctionCallParser.ToolCallParserEnum[name] = type(f"{name}_tools", (CodecToolDetector,), said)
        names.append(name)
    return names


register()
