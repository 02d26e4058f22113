"""What chatcodec is measured against besides the scanners: jinja2, minijinja and transformers, where they are installed.

All peers are imported by name and used through their public functions; one that is missing has no entry.
"""

import json
import os
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from re import sub
from typing import Any

import chatcodec

from .fixtures import Message, Tools

#: messages, tools, add_generation_prompt → text
Renderer = Callable[[list[Message], Tools | None, bool], str]

NOTES = (
    "minijinja gets an `if true` for the generation tag, which it does not know, and a Python `tojson`, for equal text",
    "transformers renders by `apply_chat_template(tokenize=False)` and parses by its ResponseParser",
)

_CALL = {"name": "{name}", "arguments": "{content}"}
#: How transformers' ResponseParser reads a format; literal delimiters where it takes them, since it is faster with those.
RESPONSE_TEMPLATES: dict[str, dict[str, Any]] = {
    "qwen3_5": {
        "defaults": {"role": "assistant"},
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {
            "reasoning_content": {"open": "<think>", "close": "</think>"},
            "content": {"close": "<|im_end|>", "repeats": True, "join": ""},
            "tool_calls": {
                "open_pattern": r"<tool_call>\n<function=(?P<name>[^>\n]+)>\n",
                "close": "</function>\n</tool_call>",
                "repeats": True,
                "content": "xml-inline",
                "content_args": {"tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\n(?P<value>.*?)\n</parameter>"},
                "transform": {"type": "function", "function": _CALL},
            },
        },
    },
    "solar_open2": {
        "defaults": {"role": "assistant"},
        "start_anchor": "<|im:start|>assistant<|im:content|>",
        "fields": {
            "reasoning_content": {"open": "<|think:start|>", "close": "<|think:end|>"},
            "content": {"close": "<|im:end|>", "repeats": True, "join": ""},
            "tool_calls": {
                "open_pattern": r"<\|tool_call:start\|>(?P<name>[^\n]+)\n",
                "close": "<|tool_call:end|>",
                "repeats": True,
                "content": "xml-inline",
                "content_args": {"tag_pattern": r"<\|tool_arg:start\|>(?P<key>.*?)<\|tool_arg:value\|>(?P<value>.*?)<\|tool_arg:end\|>"},
                "transform": {"type": "function", "function": _CALL},
            },
        },
    },
}


@lru_cache
def _optional(module: str) -> Any | None:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # else it warns that there is no torch
    try:
        return import_module(module)
    except ImportError:
        return None


def versions() -> dict[str, str | None]:
    """The versions of chatcodec and the peers; None for those that are not installed."""
    found: dict[str, str | None] = {"chatcodec": chatcodec.__version__}
    for name in ("jinja2", "minijinja", "transformers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def response_parser(format: str, prefix: str) -> Callable[[Tools], Any] | None:
    """Makes transformers' stream parsers for a format, in the state that the prompt `prefix` leaves."""
    parsing, loading = _optional("transformers.utils.chat_parsing"), _optional("transformers.utils.chat_parsing.response_templates")
    if parsing is None or loading is None or format not in RESPONSE_TEMPLATES:
        return None
    template = loading.load_response_template(RESPONSE_TEMPLATES[format])
    return lambda tools: parsing.ResponseParser(template, prefix=prefix, tools=tools)


def renderers(path: Path | None) -> dict[str, Renderer]:
    """Every way to run the chat template in that file, by peer."""
    if path is None or not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as file:  # the template's own line ends
        source = file.read()
    made = {"transformers": _transformers(source), "minijinja": _minijinja(source), "jinja2": _jinja2(source)}
    return {name: renderer for name, renderer in made.items() if renderer is not None}


def _raise_exception(message: str) -> None:
    raise ValueError(message)


def _tojson(value: Any, **options: Any) -> str:
    return json.dumps(value, **{"ensure_ascii": False} | options)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _jinja2(source: str) -> Renderer | None:
    """The environment that transformers builds, and nothing of transformers around it."""
    jinja2, ext, sandbox = _optional("jinja2"), _optional("jinja2.ext"), _optional("jinja2.sandbox")
    if jinja2 is None or ext is None or sandbox is None:
        return None

    def parse(self: Any, parser: Any) -> Any:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(lineno)

    generation = type("Generation", (ext.Extension,), {"tags": {"generation"}, "parse": parse, "_body": lambda self, caller: caller()})
    environment = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[generation, ext.loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    render = environment.from_string(source).render
    return lambda messages, tools, prompt: render(messages=messages, tools=tools, documents=None, add_generation_prompt=prompt)


def _minijinja(source: str) -> Renderer | None:
    minijinja = _optional("minijinja")
    if minijinja is None:
        return None
    environment = minijinja.Environment(
        templates={"chat": sub(r"(\{%-?\s*)generation\b", r"\1if true", source).replace("endgeneration", "endif")},
        trim_blocks=True,
        lstrip_blocks=True,
        filters={"tojson": _tojson},
        globals={"raise_exception": _raise_exception, "strftime_now": _strftime_now},
    )
    render = environment.render_template
    return lambda messages, tools, prompt: str(render("chat", messages=messages, tools=tools, documents=None, add_generation_prompt=prompt))


def _transformers(source: str) -> Renderer | None:
    """apply_chat_template itself, on a tokenizer that knows no word: it is not asked for tokens."""
    transformers, tokenizers, models = _optional("transformers"), _optional("tokenizers"), _optional("tokenizers.models")
    if transformers is None or tokenizers is None or models is None:
        return None
    empty = tokenizers.Tokenizer(models.WordLevel({}))
    render = transformers.PreTrainedTokenizerFast(tokenizer_object=empty, chat_template=source).apply_chat_template
    return lambda messages, tools, prompt: str(render(messages, tools=tools, tokenize=False, add_generation_prompt=prompt))
