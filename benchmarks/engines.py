"""What the Qwen parsers of SGLang and vLLM take for a delta, where those engines can be imported.

Rules of this module:

* each runs in a process of its own, with the whole completion and the same tools, by its streaming method for calls; its
  reasoning parser would come on top;
* an engine is installed, or it is where `CHATCODEC_ENGINES` points (see `tests/prepare_engines.sh`), and stand-ins take the place
  of torch.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

from chatcodec import get_format

from .fixtures import TOOLS, TURNS, completion, deltas
from .starting import fresh
from .timing import Lap

ENGINES = ("sglang", "vllm")
FORMAT = "qwen3_5"  #: both engines read it
NOTES = ("sglang and vllm are their parsers for Qwen's calls alone, each in a process of its own: no reasoning, no chunks",)
_DIRECTORY = os.environ.get("CHATCODEC_ENGINES", "")
_REPEATS = 5


def laps(format: str, turn: str) -> Mapping[str, Callable[[], float]]:
    """Laps of the engines that are here; none for other formats."""
    found: dict[str, Lap] = {}
    for engine in ENGINES if format == FORMAT else ():
        if (Path(_DIRECTORY) / engine).is_dir() if _DIRECTORY else importlib.util.find_spec(engine) is not None:
            (found[engine],) = fresh("from benchmarks.engines import seconds", f"print(seconds({engine!r}, {turn!r}))").values()
    return found


def seconds(engine: str, turn: str) -> float:
    """The best of some runs, for a delta.  Only for a process of its own."""
    if _DIRECTORY:
        sys.path.append(_DIRECTORY)
        importlib.import_module("tests.engine_process").stand_in(engine)
    pieces = deltas(completion(get_format(FORMAT), TURNS[turn], TOOLS))
    run = {"sglang": _sglang, "vllm": _vllm}[engine](pieces)
    assert run() == sum("<function=" in call for call in completion(get_format(FORMAT), TURNS[turn], TOOLS).split("<tool_call>"))
    return min(_timed(run) for _ in range(_REPEATS)) / len(pieces)


def _timed(run: Callable[[], int]) -> float:
    start = process_time()
    run()
    return process_time() - start


def _sglang(pieces: list[str]) -> Callable[[], int]:
    from sglang.srt.entrypoints.openai.protocol import Tool
    from sglang.srt.function_call.qwen3_coder_detector import Qwen3CoderDetector

    tools = [Tool(**tool) for tool in TOOLS]

    def run() -> int:
        detector, names = Qwen3CoderDetector(), 0
        for piece in pieces:
            names += sum(call.name is not None for call in detector.parse_streaming_increment(piece, tools).calls)
        return names

    return run


class _Vocabulary:
    """The little that vLLM's parser asks of a tokenizer."""

    def get_vocab(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(get_format(FORMAT).special_tokens)}


def _vllm(pieces: list[str]) -> Callable[[], int]:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers import ToolParserManager

    request = ChatCompletionRequest(model="model", messages=[{"role": "user", "content": "Go on."}], tools=TOOLS)
    make: Any = partial(ToolParserManager.get_tool_parser("qwen3_coder"), _Vocabulary(), request.tools)

    def run() -> int:
        parser, text, names = make(), "", 0
        for piece in pieces:
            before, text = text, text + piece
            message = parser.extract_tool_calls_streaming(before, text, piece, [], [], [], request)
            names += sum(call.function.name is not None for call in (message.tool_calls if message is not None else ()))
        return names

    return run
