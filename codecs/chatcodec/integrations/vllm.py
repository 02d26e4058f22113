"""Tool and reasoning parsers for vLLM, one of each for every format, named `chatcodec_` and the format's name.

    vllm serve MODEL --tool-parser-plugin chatcodec.integrations.vllm --reasoning-parser-plugin chatcodec.integrations.vllm \\
        --enable-auto-tool-choice --tool-call-parser chatcodec_qwen3_5 --reasoning-parser chatcodec_qwen3_5

Rules of this module:

* it imports vLLM, and importing it registers the parsers: give vLLM the module's name, not its path;
* both parsers are what vLLM calls engine based: vLLM hands them each delta once and asks them for what they hold back at the
  end.  The two parsers of a request share one `Turn`: the reasoning parser passes the text on as it comes, and the tool
  parser reads it with one `Answer` that tells reasoning, content and calls;
* alone, a reasoning parser leaves calls in the content as they were written, and a tool parser puts reasoning before the
  content;
* markers and the stop token must reach the parsers: special tokens are not skipped, and unless the request has stop strings
  of its own the stop token stays in the text;
* vLLM does not tell a parser why the model stopped: only a stop token that was seen means a normal end;
* `tool_choice` "required" or a named tool is read in the model's own format, like "auto", not forced by a grammar.
"""

import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from ..errors import CodecError
from ..format import Format
from ..formats import get_format, list_formats
from .opening import functions_of, marks, prompt_text, reasoning_closed
from .serving import PREFIX, Answer, BareAnswer, Delta, Whole, read_whole

try:
    from vllm.entrypoints.generate.base.protocol import (
        DeltaFunctionCall,
        DeltaMessage,
        DeltaToolCall,
        ExtractedToolCallInformation,
        FunctionCall,
        ToolCall,
    )
    from vllm.reasoning import ReasoningParser, ReasoningParserManager
    from vllm.renderers.chat_utils import make_tool_call_id
    from vllm.tool_parsers import ToolParser, ToolParserManager
except ImportError as error:
    raise CodecError(f"chatcodec.integrations.vllm needs vLLM 0.33 or newer (pip install vllm): {error}") from error


class Turn:
    """What the two parsers of one request share.

    `paired`: both are there.  `whole` and `answer` are what was read, at once or in deltas.
    """

    def __init__(self, fmt: Format, tokenizer: Any, options: dict[str, Any]) -> None:
        self.fmt, self.tokenizer, self.options = fmt, tokenizer, options
        self.paired = False
        self.prompt_ids: Sequence[int] | None = None
        self.answer: Answer | BareAnswer | None = None
        self.whole: Whole | None = None

    def begin(self, request: Any, *, tools: Iterable[Any] | None, apart: bool, calls: bool) -> Answer | BareAnswer:
        """What reads the completion of a request.  None as a request: all that is known is the prompt."""
        given = self._opening(request)
        if request is not None and _is_bare(request):
            return BareAnswer(self.fmt, from_start=not request.include_reasoning, apart=apart, **given)
        return Answer(self.fmt, tools=functions_of(tools), apart=apart, calls=calls, **given)

    def _opening(self, request: Any) -> dict[str, Any]:
        """How the completion begins."""
        options = {**self.options, **(getattr(request, "chat_template_kwargs", None) or {})}
        effort = getattr(request, "reasoning_effort", None)
        if effort is not None:
            options.setdefault("reasoning_effort", effort)
        return {"prompt": None if self.prompt_ids is None else self.text(self.prompt_ids), "options": options}

    def text(self, tokens: Sequence[int]) -> str:
        """The end of a prompt as text."""
        return prompt_text(self.fmt, tokens, self.decode)

    def decode(self, tokens: Sequence[int]) -> str:
        """Tokens as text, markers included."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=False))

    def reasoning(self) -> str:
        """All reasoning that was read so far."""
        if self.answer is not None:
            return self.answer.reasoning
        return self.whole.reasoning if self.whole is not None else ""


class _Made(threading.local):
    """The last reasoning parser made in this thread; vLLM makes a request's tool parser right behind it."""

    last: "weakref.ref[CodecReasoningParser] | None" = None


_made = _Made()


class CodecReasoningParser(ReasoningParser):  # type: ignore[misc]
    """Tells reasoning from the rest of a completion in the format of `format_name`."""

    format_name: ClassVar[str]
    engine_based_streaming = True

    def __init__(self, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(tokenizer, *args, **kwargs)
        self.fmt = get_format(self.format_name)
        self.turn = Turn(self.fmt, tokenizer, dict(kwargs.get("chat_template_kwargs") or {}))
        _made.last = weakref.ref(self)

    # -- the prompt

    def set_prompt_token_ids(self, prompt_token_ids: Sequence[int]) -> None:
        """The prompt tells in which state the completion starts."""
        self.turn.prompt_ids = prompt_token_ids

    @property
    def reasoning_start_str(self) -> str | None:
        """What opens reasoning."""
        return marks(self.fmt).start or None

    @property
    def reasoning_end_str(self) -> str | None:
        """The token that ends reasoning."""
        return marks(self.fmt).end or None

    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        """Whether reasoning is over behind these tokens.

        vLLM feeds a reasoning parser no more once reasoning is over.  Alone, it must see all of the completion, whose frames
        nobody else takes away; so a parser that has been given its prompt says no.
        """
        if self.turn.prompt_ids is not None and not self.turn.paired:
            return False
        return reasoning_closed(self.fmt, self.turn.text(input_ids))

    def is_reasoning_end_streaming(self, input_ids: Sequence[int], delta_ids: Iterable[int]) -> bool:
        """Whether reasoning ends in these last tokens."""
        new, end = list(delta_ids), marks(self.fmt).end
        before = self.turn.decode(input_ids[-len(new) - len(end) : len(input_ids) - len(new)])[-len(end) :]
        return bool(new) and bool(end) and end in before[1:] + self.turn.decode(new)

    def extract_content_ids(self, input_ids: list[int]) -> list[int]:
        """The tokens behind the first one that ends reasoning."""
        end = self.vocab.get(marks(self.fmt).end)
        return input_ids[input_ids.index(end) + 1 :] if end in input_ids else []

    def count_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        """How many tokens the reasoning has that was read so far."""
        return len(self.model_tokenizer.encode(self.turn.reasoning(), add_special_tokens=False))

    # -- the completion

    def extract_reasoning(self, model_output: str, request: Any) -> tuple[str | None, str | None]:
        """Reasoning and content of a whole completion.  Its calls wait for the tool parser; without one they are content."""
        calls = self.turn.paired and request.tool_choice != "none"
        self.turn.whole = read_whole(self.turn.begin(request, tools=request.tools, apart=True, calls=calls), model_output)
        return self.turn.whole.reasoning or None, self.turn.whole.content or None

    def extract_reasoning_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
    ) -> Any:
        """What is new, or where a tool parser follows the text itself for it."""
        if self.turn.paired:
            return DeltaMessage(content=delta_text)
        if self.turn.answer is None:
            self.turn.answer = self.turn.begin(None, tools=None, apart=True, calls=False)
        return message_of(self.turn.answer.feed(delta_text))

    def has_engine_confirmed_reasoning_end(self) -> bool:
        """Whether the tool parser takes over: at once, if there is one."""
        return self.turn.paired

    def finish_streaming(self) -> Any:
        """What was held back until the completion is over."""
        if self.turn.paired or self.turn.answer is None:
            return None
        return message_of(self.turn.answer.close())

    def adjust_request(self, request: Any) -> Any:
        """Let markers through to the parser."""
        return keep_markers(request)


class CodecToolParser(ToolParser):  # type: ignore[misc]
    """Reads the calls of a completion in the format of `format_name`, and with its reasoning parser all of it."""

    format_name: ClassVar[str]
    supports_required_and_named = False  #: calls come in the model's format for every tool_choice
    engine_based_streaming = True

    def __init__(self, tokenizer: Any, tools: Any = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(tokenizer, tools, *args, **kwargs)
        self.fmt = get_format(self.format_name)
        self.turn = Turn(self.fmt, tokenizer, {})
        other = _made.last() if _made.last is not None else None
        _made.last = None
        if other is not None and other.model_tokenizer is tokenizer:
            if other.format_name != self.format_name:
                raise CodecError(
                    f"--reasoning-parser {PREFIX}{other.format_name} and --tool-call-parser {PREFIX}{self.format_name} "
                    "are parsers of two formats; give both of one format"
                )
            self.turn = other.turn
            self.turn.paired = True

    @property
    def skip_reasoning_parsing(self) -> bool:
        """Whether there is no reasoning parser, so that reasoning is content; vLLM says so where it is."""
        return not self.turn.paired

    @skip_reasoning_parsing.setter
    def skip_reasoning_parsing(self, alone: bool) -> None:
        if alone and self.turn.paired:
            self.turn.paired = False
            self.turn = Turn(self.fmt, self.model_tokenizer, {})

    def adjust_request(self, request: Any) -> Any:
        """Let markers through to the parser."""
        return keep_markers(super().adjust_request(request))

    def extract_tool_calls(self, model_output: str, request: Any) -> Any:
        """Content and calls of a whole completion, or of what the reasoning parser made of it."""
        whole, self.turn.whole = self.turn.whole, None
        if whole is None or whole.content != model_output:
            if self._unread(request):
                return ExtractedToolCallInformation(tools_called=False, tool_calls=[], content=model_output)
            whole = read_whole(self._begin(request), model_output)
        else:
            self.turn.whole = whole._replace(calls=[])  # its reasoning may still be counted
        made = [ToolCall(function=FunctionCall(name=call.name, arguments=call.arguments)) for call in whole.calls]
        return ExtractedToolCallInformation(tools_called=bool(made), tool_calls=made, content=whole.content or None)

    def extract_tool_calls_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
        request: Any,
    ) -> Any:
        """What is new in the completion."""
        if self.turn.answer is None:
            if self._unread(request):
                return DeltaMessage(content=delta_text) if delta_text else None
            self.turn.answer = self._begin(request)
        return message_of(self.turn.answer.feed(delta_text))

    def finish_streaming(self) -> Any:
        """What was held back until the completion is over."""
        return message_of(self.turn.answer.close()) if self.turn.answer is not None else None

    def _begin(self, request: Any) -> Answer | BareAnswer:
        tools, calls = self.tools or request.tools, request.tool_choice != "none"
        return self.turn.begin(request, tools=tools, apart=self.turn.paired, calls=calls)

    def _unread(self, request: Any) -> bool:
        """Whether the text has no markers to go by: vLLM adjusts no request that wants neither calls nor reasoning."""
        return not self.turn.paired and request.tool_choice == "none" and request.skip_special_tokens is not False


def _is_bare(request: Any) -> bool:
    """Whether a grammar holds the content to a schema, so that it comes without the format's frames."""
    held = request.extract_structured_outputs()
    return held is not None and held.structural_tag is None


def message_of(delta: Delta) -> Any:
    """A delta as vLLM's message, None where nothing is new."""
    if not delta:
        return None
    calls = [
        DeltaToolCall(
            index=call.index,
            function=DeltaFunctionCall(name=call.name, arguments=call.arguments),
            **({"id": make_tool_call_id(), "type": "function"} if call.name is not None else {}),
        )
        for call in delta.calls
    ]
    return DeltaMessage(reasoning=delta.reasoning or None, content=delta.content or None, tool_calls=calls)


def keep_markers(request: Any) -> Any:
    """The request, changed so that the text has its markers and, unless it names stops of its own, the stop token."""
    request.skip_special_tokens = False
    if hasattr(request, "spaces_between_special_tokens"):
        request.spaces_between_special_tokens = False
    if hasattr(request, "include_stop_str_in_output") and not (getattr(request, "stop", None) or getattr(request, "stop_token_ids", None)):
        request.include_stop_str_in_output = True
    return request


def register() -> list[str]:
    """Register the parsers of every format; gives their names."""
    names = []
    for format_name in list_formats():
        name = PREFIX + format_name
        said = {"format_name": format_name, "__module__": __name__}
        ReasoningParserManager.register_module(name, module=type(f"{name}_reasoning", (CodecReasoningParser,), said))
        ToolParserManager.register_module(name, module=type(f"{name}_tools", (CodecToolParser,), said))
        names.append(name)
    return names


register()
