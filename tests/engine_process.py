"""Drives the parsers of vLLM and SGLang, in a process of its own: `engines.py` starts it.

Rules of this module:

* the engines' own code is driven: vLLM's `ParserManager`, `ChatStreamProcessor` and `Parser`, SGLang's `ReasoningParser`,
  `FunctionCallParser` and what `OpenAIServingChat` does with them for each delta, and for a whole completion;
* both engines want torch and GPU kernels, which no parser touches: where there is no torch, stand-ins take their place, in this
  process only, so that no test ever sees them.
"""

import asyncio
import importlib
import importlib.util
import json
import sys
import types
from abc import ABCMeta
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import chatcodec

Job = dict[str, Any]

#: Modules that only a GPU needs, and what torch, kernels and drivers come in by.
STAND_INS = {
    "vllm": ("torch", "triton", "xgrammar", "vllm.env_override", "vllm.distributed", "vllm.compilation", "vllm.model_executor.offloader"),
    "sglang": (
        "torch", "torchao", "torchvision", "triton", "xgrammar", "IPython", "sglang.kernels", "sglang.srt.configs",
        "sglang.srt.disaggregation", "sglang.srt.distributed", "sglang.srt.managers", "sglang.srt.model_executor",
        "sglang.srt.observability",
    ),
}  # fmt: skip


class _AnyClass(ABCMeta):
    """A class whose every attribute is such a class."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _any_class(name)

    def __call__(cls, *given: Any, **options: Any) -> Any:
        return given[0] if len(given) == 1 and not options and callable(given[0]) else super().__call__()

    def __iter__(cls) -> Iterator[Any]:
        return iter(())


class _Anything(metaclass=_AnyClass):
    """False, empty, nothing; a decorator, a context, and whatever else a module wants when it is imported."""

    def __init__(self, *given: Any, **options: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _any_class(name)

    def __call__(self, *given: Any, **options: Any) -> Any:
        return given[0] if len(given) == 1 and callable(given[0]) else _Anything()

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.any_schema()

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __contains__(self, item: Any) -> bool:
        return False

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None: ...


def _any_class(name: str) -> Any:
    return _AnyClass(name, (_Anything,), {})


class _StandIns(MetaPathFinder, Loader):
    """Finds the modules that are stood in for."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if any(name == stood or name.startswith(stood + ".") for stood in self.names):
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__dict__.update(__path__=[], __version__="2.9.0")

        def attribute(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            found = module.__dict__[name] = _any_class(name)
            return found

        module.__dict__["__getattr__"] = attribute
        return module

    def exec_module(self, module: types.ModuleType) -> None: ...


class Tokenizer:
    """A token for every marker, and one for every other character."""

    def __init__(self, fmt: chatcodec.Format) -> None:
        self._markers = sorted(fmt.special_tokens, key=len, reverse=True)
        self._vocab = {marker: 0x110000 + number for number, marker in enumerate(self._markers)}
        self._texts = {number: marker for marker, number in self._vocab.items()}
        self.bos_token_id = None

    def get_vocab(self) -> dict[str, int]:
        """Markers and their ids."""
        return self._vocab

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The ids of a text."""
        ids, place = [], 0
        while place < len(text):
            marker = next((marker for marker in self._markers if text.startswith(marker, place)), text[place])
            ids.append(self._vocab.get(marker, ord(marker[0])))
            place += len(marker)
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False, spaces_between_special_tokens: bool = True) -> str:
        """The text of ids."""
        return "".join(chr(number) if number not in self._texts else "" if skip_special_tokens else self._texts[number] for number in ids)


class Told:
    """What a client has been told."""

    def __init__(self) -> None:
        self.reasoning, self.content = "", ""
        self.calls: dict[int, dict[str, Any]] = {}

    def call(self, index: int, call_id: str | None, name: str | None, arguments: str | None) -> None:
        """More of a call."""
        made = self.calls.setdefault(index, {"id": call_id, "name": "", "arguments": ""})
        made["name"] += name or ""
        made["arguments"] += arguments or ""

    def said(self) -> dict[str, Any]:
        """All of it, calls in their order."""
        return {"reasoning": self.reasoning, "content": self.content, "calls": [self.calls[index] for index in sorted(self.calls)]}


def _whole(reasoning: str | None, content: str | None, calls: Sequence[Any] | None) -> dict[str, Any]:
    made = [{"id": call.id, "name": call.function.name, "arguments": call.function.arguments} for call in calls or ()]
    return {"reasoning": reasoning or "", "content": content or "", "calls": made}


def drive_vllm(job: Job) -> dict[str, Any]:
    """A completion through vLLM: `parsers` are those in use, `request` what is said besides tools and choice."""
    from vllm.entrypoints.openai.chat_completion.message_assembly import assemble_chat_message_fields
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.chat_completion.stream_processor import ChatStreamProcessor
    from vllm.parser import ParserManager

    name = f"chatcodec_{job['format']}"
    tokenizer = Tokenizer(chatcodec.get_format(job["format"]))
    parser_class = ParserManager.get_parser(
        tool_parser_name=name if "tools" in job["parsers"] else None,
        reasoning_parser_name=job.get("reasoning_parser", name) if "reasoning" in job["parsers"] else None,
        enable_auto_tools=True,
        tokenizer=tokenizer,
    )
    said = {"messages": [{"role": "user", "content": "hi"}], "model": "m", **job.get("request", {})}
    if job.get("tools"):
        said |= {"tools": job["tools"], "tool_choice": job.get("tool_choice", "auto")}
    request = ChatCompletionRequest(**said)

    def parser() -> Any:
        options = request.chat_template_kwargs or {}
        return parser_class(tokenizer, request.tools, chat_template_kwargs=options, model_config=None)

    if "reasoning" in job["parsers"] or request.tool_choice != "none":
        request = parser().adjust_request(request)
    prompt = tokenizer.encode(job["prompt"])
    stepped = parser()
    processor = ChatStreamProcessor(request, stepped, enable_auto_tools=True, parser_cls=parser_class)
    told, finish, cuts = Told(), None, job["cuts"] or [""]
    for number, cut in enumerate(cuts):
        reason = job["finish"] if number == len(cuts) - 1 else None
        ids = tokenizer.encode(cut) or ([0] if number == 0 else [])
        step = processor.step(cut, ids, reason, prompt)
        finish = step.finish_reason
        if step.delta is not None:
            told.reasoning += step.delta.reasoning or ""
            told.content += step.delta.content or ""
            for call in step.delta.tool_calls:
                told.call(call.index, call.id, call.function.name, call.function.arguments)
    whole = parser()
    whole.set_prompt_token_ids(prompt)
    parts = whole.parse("".join(cuts), request, enable_auto_tools=True)
    fields = assemble_chat_message_fields(request, *parts, enable_auto_tools=True, parser_cls=parser_class)
    return {
        "streamed": told.said(),
        "finish": finish,
        "whole": _whole(fields.reasoning, fields.content, fields.tool_calls),
        "request": {key: getattr(request, key) for key in ("skip_special_tokens", "include_stop_str_in_output")},
        "reasoning_tokens": [stepped.count_reasoning_tokens([]), whole.count_reasoning_tokens([])],
    }


def drive_vllm_ids(job: Job) -> dict[str, Any]:
    """What vLLM's reasoning parser says of token ids: whether they end reasoning, at once and after each token more."""
    from vllm.reasoning import ReasoningParserManager

    fmt = chatcodec.get_format(job["format"])
    tokenizer = Tokenizer(fmt)
    parser = ReasoningParserManager.get_reasoning_parser(f"chatcodec_{job['format']}")(tokenizer)
    prompt, text = tokenizer.encode(job["prompt"]), tokenizer.encode(job["text"])
    ended = [parser.is_reasoning_end_streaming(prompt + text[: end + 1], text[end : end + 1]) for end in range(len(text))]
    return {
        "marks": [parser.reasoning_start_str, parser.reasoning_end_str],
        "prompt": parser.is_reasoning_end(prompt),
        "text": tokenizer.decode(text[: ended.index(True) + 1]) if True in ended else None,
        "content": tokenizer.decode(parser.extract_content_ids(text)),
    }


def drive_sglang(job: Job) -> dict[str, Any]:
    """A completion through SGLang: `parsers` are those in use, `request` what is said besides tools and choice."""
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat, _incomplete_tool_call_indices
    from sglang.srt.parser.reasoning_parser import ReasoningParser
    from sglang.srt.parser.response_template import configure_response_template_request, tool_close_tokens

    name = f"chatcodec_{job['format']}"
    tokenizer = Tokenizer(chatcodec.get_format(job["format"]))
    serving = OpenAIServingChat.__new__(OpenAIServingChat)
    serving.tokenizer_manager = types.SimpleNamespace(tokenizer=tokenizer, config_value=lambda key: None)
    serving.template_manager = types.SimpleNamespace(force_reasoning=False, reasoning_config=None)
    serving.tool_call_parser = name if "tools" in job["parsers"] else None
    serving.reasoning_parser = name if "reasoning" in job["parsers"] else None
    serving._reasoning_detector = ReasoningParser(name, tokenizer=tokenizer).detector if serving.reasoning_parser else None
    said = {"messages": [{"role": "user", "content": "hi"}], "model": "m", **job.get("request", {})}
    if job.get("tools"):
        said |= {"tools": job["tools"], "tool_choice": job.get("tool_choice", "auto")}
    request = ChatCompletionRequest(**said)
    request._response_parser_prefix = job["prompt"]
    request._response_parser_grammar_start = job.get("grammar_start")
    request._response_parser_json_response_format = job.get("grammar_start") is not None
    if serving._requires_response_template_detokenization(request):
        configure_response_template_request(request)
    active = serving._tool_call_parsing_active(request)

    async def stream() -> tuple[Told, Any]:
        told, cuts = Told(), job["cuts"] or [""]
        readers: dict[int, Any] = {}
        callers: dict[int, Any] = {}
        called: dict[int, bool] = {}
        for number, delta in enumerate(cuts):
            over = job["finish"] if number == len(cuts) - 1 else None
            content = {"meta_info": {"id": "1"}}
            if serving.reasoning_parser and request.separate_reasoning:
                reasoning, delta = serving._process_reasoning_stream(0, delta, readers, content, request, over)
                told.reasoning += reasoning or ""
            if not active:
                told.content += delta
                continue
            async for chunk in serving._process_tool_call_stream(
                0, delta, callers, content, request, called, created=0, flush=over is not None
            ):
                new = json.loads(chunk.removeprefix("data: "))["choices"][0]["delta"]
                told.content += new.get("content") or ""
                for call in new.get("tool_calls") or ():
                    told.call(call["index"], call["id"], call["function"].get("name"), call["function"].get("arguments"))
            if over and callers:
                assert serving._check_for_unstreamed_tool_args(callers[0], content, request, 0, created=0) is None
        unfinished = _incomplete_tool_call_indices(callers.get(0))
        return told, "tool_calls" if called.get(0) and job["finish"] == "stop" and not unfinished else job["finish"]

    told, finish = asyncio.run(stream())
    reasoning, text, calls = None, "".join(job["cuts"]), None
    if serving.reasoning_parser and request.separate_reasoning:
        force = serving._get_reasoning_from_request(request)
        parser = ReasoningParser(
            name, stream_reasoning=False, force_reasoning=force, request=request, tokenizer=tokenizer, tool_call_parser_active=active
        )
        reasoning, text = parser.parse_non_stream(text)
    if active:
        reason = {"type": job["finish"], "matched": None}
        choice, prefix = request.tool_choice, request._response_parser_prefix
        calls, text, _ = serving._process_tool_calls(text, serving._effective_tools(request), reason, choice, 0, prefix)
    return {
        "streamed": told.said(),
        "finish": finish,
        "whole": _whole(reasoning, text, calls),
        "request": {"skip_special_tokens": request.skip_special_tokens},
        "kept": sorted(tool_close_tokens(name, tokenizer).values()),
    }


def stand_in(engine: str) -> None:
    """Put stand-ins where an engine wants torch, if there is none, in this process."""
    if importlib.util.find_spec("torch") is None:
        importlib.import_module("transformers")  # while it can see that there is no torch
        sys.meta_path.insert(0, _StandIns(STAND_INS[engine]))


def _serve(engine: str) -> None:
    stand_in(engine)
    drives = {"vllm": drive_vllm, "vllm_ids": drive_vllm_ids, "sglang": drive_sglang}
    if engine == "vllm":
        tools, reasoning = importlib.import_module("vllm.tool_parsers"), importlib.import_module("vllm.reasoning")
        tools.ToolParserManager.import_tool_parser("chatcodec.integrations.vllm")
        reasoning.ReasoningParserManager.import_reasoning_parser("chatcodec.integrations.vllm")
        registered = [tools.ToolParserManager.list_registered(), reasoning.ReasoningParserManager.list_registered()]
    else:
        importlib.import_module("chatcodec.integrations.sglang").register()
        arguments = importlib.import_module("sglang.srt.server_args")
        registered = [arguments._tool_call_parser_choices(), arguments._reasoning_parser_choices()]
    print(json.dumps({"registered": registered}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = drives[job.pop("drive", engine)](job)
        except Exception as error:  # what an engine would answer a request with
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).parent))  # a test may have the name of a package
    _serve(sys.argv[1])
