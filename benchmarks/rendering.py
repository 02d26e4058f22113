"""Rows about whole conversations: rendering, reading prompts back, and the real corpus.

Every renderer gets plain dicts, and checks them if it checks anything.  Before a race all must have written the same texts.
"""

import gzip
import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from chatcodec import Format

from .fixtures import LONG_TOOLS, Message, Tools, long_conversation, small_conversations
from .peers import Renderer, renderers
from .table import OURS, Row
from .timing import Lap, lap

Conversations = Sequence[tuple[list[Message], Tools | None]]

#: At least 5 times as fast as transformers, and ahead of minijinja.
GOALS = {"transformers": 0.2, "minijinja": 1.0}
QUICK_CORPUS = 300  #: conversations

NOTES = ("minijinja has its own way with floats (0.0 becomes 0), so that on the corpus, and only there, its text may differ",)


def rows(fmt: Format, templates: Path | None, corpus: Path | None, quick: bool) -> Iterator[Row]:
    """All rows of a format."""
    template = templates / f"{fmt.name}.jinja" if templates else None
    long = [(long_conversation(), LONG_TOOLS)]
    yield Row(fmt.name, "render 200 turns, 20 tools", "us", partial(_renders, fmt, template, long), GOALS)
    small = partial(_renders, fmt, template, small_conversations())
    yield Row(fmt.name, "render 1,000 small conversations", "us/conversation", small, GOALS)
    yield Row(fmt.name, "render 200 turns with spans and losses", "us", partial(_renders_all, fmt))
    yield Row(fmt.name, "parse_prompt 200 turns, 20 tools", "us", partial(_prompts, fmt))
    if corpus:
        count = QUICK_CORPUS if quick else None
        real = partial(_corpus_renders, fmt, template, corpus, count)
        yield Row(fmt.name, "render the corpus", "conversations/s", real, least=2)
        yield Row(fmt.name, "parse the corpus's assistant turns", "turns/s", partial(_corpus_parses, fmt, corpus, count), least=2)


def _renders(
    fmt: Format, template: Path | None, conversations: Conversations, prompt: bool = True, inexact: Container[str] = ()
) -> Mapping[str, Lap]:
    def ours(messages: list[Message], tools: Tools | None, prompt: bool) -> str:
        return fmt.render(messages, tools=tools, add_generation_prompt=prompt).text

    contestants: dict[str, Renderer] = {OURS: ours, **renderers(template)}
    for messages, tools in conversations:
        texts = {name: render(messages, tools, prompt) for name, render in contestants.items()}
        for name, text in texts.items():
            assert text == texts[OURS] or name in inexact, f"{fmt.name}: {name} renders otherwise than chatcodec: {messages!r:.200}"
    return {name: lap(partial(_each, render, conversations, prompt), len(conversations)) for name, render in contestants.items()}


def _each(render: Renderer, conversations: Conversations, prompt: bool) -> None:
    for messages, tools in conversations:
        render(messages, tools, prompt)


def _renders_all(fmt: Format) -> Mapping[str, Lap]:
    def everything() -> None:
        rendered = fmt.render(messages, tools=LONG_TOOLS, add_generation_prompt=True)
        _ = rendered.spans, rendered.losses, rendered.generation_spans, rendered.sampled_spans

    messages = long_conversation()
    return {OURS: lap(everything)}


def _prompts(fmt: Format) -> Mapping[str, Lap]:
    text = fmt.render(long_conversation(), tools=LONG_TOOLS, add_generation_prompt=True).text
    read = fmt.parse_prompt(text)
    assert fmt.render(read.messages, tools=read.tools, **read.options).text == text, f"{fmt.name}: the prompt does not come back"
    return {OURS: lap(lambda: fmt.parse_prompt(text))}


@lru_cache
def _load(corpus: Path, count: int | None) -> Conversations:
    with gzip.open(corpus, "rt", encoding="utf-8") as lines:
        loaded = [json.loads(line) for line in lines]
    step = len(loaded) // count if count else 1  # a sample of the whole file, since like stands beside like in it
    return [(conversation["messages"], conversation["tools"]) for conversation in loaded[::step]]


def _corpus_renders(fmt: Format, template: Path | None, corpus: Path, count: int | None) -> Mapping[str, Lap]:
    return _renders(fmt, template, _load(corpus, count), prompt=False, inexact=("minijinja",))


def _corpus_parses(fmt: Format, corpus: Path, count: int | None) -> Mapping[str, Lap]:
    turns: list[tuple[str, Tools | None]] = []
    for messages, tools in _load(corpus, count):
        rendered = fmt.render(messages, tools=tools)
        turns += [(rendered.text[slice(*span)], tools) for span in rendered.sampled_spans if span]

    def parse(text: str, tools: Tools | None) -> Any:
        return fmt.parse(text, tools=tools).message

    return {OURS: lap(partial(_all, parse, turns), len(turns))}


def _all(parse: Callable[[str, Tools | None], Any], turns: list[tuple[str, Tools | None]]) -> None:
    for text, tools in turns:
        parse(text, tools)
