"""Conversations made to find where a template and a format part: a few dozen for every feature that a template may have.

Rules of this module:

* a probe is as small as its feature allows, so that a difference says which feature it belongs to;
* the same seed gives the same probes everywhere;
* a format is known only by what it says of itself: its options, the parts it knows, its control tokens.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from random import Random
from typing import Any, NamedTuple

from ..format import Format, Option

Json = Any

TEXTS = (
    "hello", "What is the weather in Oslo?", "Two\nlines", "One paragraph.\n\nAnother.", "naïve 여름 😀", "a < b > c & 'd' \"e\"",
    "{{ x }} {% y %}", "```python\nprint(1)\n```", "null", "True", "42", "1.0", '{"a": [1, 2]}', "back\\slash \\n",
)  # fmt: skip
BLANK_TEXTS = (" leading", "trailing ", "\n both \n", "\t", " ", "\u00a0nbsp\u00a0", "\u3000wide", "in  side", "line\r\nend\r\n", "\n")
VALUES: tuple[Json, ...] = (
    "Oslo", "", "two\nlines", "<b>", '"quoted"', "None", 3, -1, 0, 2**64, 1.0, 0.5, 1e16, 1e-7, True, False, None, [], [1, "a", None],
    {}, {"b": 1, "a": [True, 2.5]}, "여름 😀",
)  # fmt: skip
SCHEMAS: tuple[Json, ...] = (
    {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}, {"type": "array", "items": {"type": "string"}},
    {"type": "object", "properties": {"a": {"type": "integer"}}}, {"type": "string", "enum": ["red", "blue"]},
    {"type": ["string", "null"]}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"oneOf": [{"type": "integer"}, {"type": "null"}]},
    {"type": "string", "nullable": True}, {"type": "integer", "minimum": 1, "default": 5, "description": "How many.\nAt least one."},
    {"type": "string", "description": "Where.", "default": "Oslo", "examples": ["Oslo"]}, {}, {"type": "array"}, {"type": "object"},
)  # fmt: skip
NAMES = ("search", "get_weather", "read-file", "lookup.v2")
KEYS = ("query", "n", "city", "with space", "keys", "items")
MEDIA: tuple[Json, ...] = (
    {"type": "image"}, {"type": "image", "image": "cat.png"}, {"type": "image_url", "image_url": {"url": "cat.png"}}, {"type": "video"},
    {"type": "audio"}, {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
)  # fmt: skip


class Probe(NamedTuple):
    """A conversation that tries one feature."""

    feature: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    options: dict[str, Any]
    option: str | None = None  #: the option that it tries, if it tries one


def probes(format: Format, *, count: int = 30, seed: int = 0) -> Iterator[Probe]:
    """`count` probes of every feature.  Those of options try the values that the format declares."""
    for feature, make in _FEATURES.items():
        random = Random(f"{seed} {feature}")
        for _ in range(count):
            messages, tools, options = make(random, format)
            yield Probe(feature, messages, tools, options)
    for name, option in format.options.items():
        random = Random(f"{seed} option {name}")
        for number in range(count):
            make = (_turns, _thinking_turns, _declared, _answered)[number % 4]
            messages, tools, _ = make(random, format)
            ends = {} if messages[-1]["role"] == "assistant" else {"add_generation_prompt": random.random() < 0.5}
            value = _option_value(random, option, number)
            yield Probe(f"option {name}", messages, tools, ends | {name: value}, name)


def features_of(messages: Sequence[Any], tools: Sequence[Any] | None, options: Mapping[str, Any]) -> list[str]:
    """The features that a conversation of anybody's has, by the same names."""
    known = [message for message in messages if isinstance(message, Mapping)]
    roles = [message.get("role") for message in known]
    calls = [message.get("tool_calls") or () for message in known]
    parts = [part for message in known if isinstance(message.get("content"), list) for part in message["content"]]
    kinds = {part.get("type") for part in parts if isinstance(part, Mapping)}
    found = {
        "plain": True,
        "multi-turn": roles.count("user") > 1,
        "system": "system" in roles,
        "late system": "system" in roles[1:],
        "other roles": not set(map(str, roles)) <= {"system", "user", "assistant", "tool"},
        "reasoning": any(message.get(key) for message in known for key in ("reasoning_content", "reasoning", "thinking")),
        "tools": bool(tools),
        "calls": any(calls),
        "parallel calls": any(len(some) > 1 for some in calls if isinstance(some, (list, tuple))),
        "calls with content": any(some and message.get("content") for some, message in zip(calls, known, strict=True)),
        "tool results": "tool" in roles,
        "text parts": "text" in kinds,
        "media": bool(kinds - {"text", "input_text", None}),
        "generation prompt": bool(options.get("add_generation_prompt")),
    }
    return [name for name, has in found.items() if has] + [f"option {name}" for name in options if name != "add_generation_prompt"]


# ------------------------------------------------------------------------------------------------------------------ making

Made = tuple[list[dict[str, Any]], list[dict[str, Any]] | None, dict[str, Any]]


def _user(random: Random, texts: Sequence[str] = TEXTS) -> dict[str, Any]:
    return {"role": "user", "content": random.choice(texts)}


def _assistant(random: Random, texts: Sequence[str] = TEXTS) -> dict[str, Any]:
    return {"role": "assistant", "content": random.choice(texts)}


def _plain(random: Random, _: Format) -> Made:
    return [_user(random)], None, {}


def _generation(random: Random, _: Format) -> Made:
    return [_user(random)], None, {"add_generation_prompt": True}


def _turns(random: Random, _: Format) -> Made:
    messages = [make(random) for _ in range(random.randint(1, 3)) for make in (_user, _assistant)]
    return messages if random.random() < 0.5 else [*messages, _user(random)], None, {}


def _system(random: Random, format: Format) -> Made:
    return [{"role": "system", "content": random.choice(("", *TEXTS))}, *_turns(random, format)[0]], None, {}


def _late_system(random: Random, _: Format) -> Made:
    return [_user(random), {"role": "system", "content": random.choice(TEXTS)}, _user(random)], None, {}


def _other_role(random: Random, _: Format) -> Made:
    role = random.choice(("developer", "function", "observation"))
    other = {"role": role, "content": random.choice(TEXTS)}
    return random.choice(([other, _user(random)], [_user(random), other])), None, {}


def _thinking(random: Random, texts: Sequence[str] = TEXTS) -> dict[str, Any]:
    key = random.choice(("reasoning_content", "reasoning_content", "reasoning", "thinking"))
    return {**_assistant(random), key: random.choice(texts)}


def _thinking_turn(random: Random, _: Format) -> Made:
    return [_user(random), _thinking(random)], None, {}


def _thinking_turns(random: Random, _: Format) -> Made:
    return [make(random) for _ in range(random.randint(2, 3)) for make in (_user, _thinking)], None, {}


def _tool(random: Random, name: str, schemas: Sequence[Json]) -> dict[str, Any]:
    properties = {key: random.choice(schemas) for key in random.sample(KEYS, random.randint(0, 3))}
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {"type": "function", "function": {"name": name, "description": random.choice(TEXTS), "parameters": parameters}}


def _tools(random: Random, schemas: Sequence[Json] = SCHEMAS[:4]) -> list[dict[str, Any]]:
    return [_tool(random, name, schemas) for name in random.sample(NAMES, random.randint(1, 3))]


def _declared(random: Random, _: Format) -> Made:
    return [_user(random)], _tools(random), {}


def _schemas(random: Random, _: Format) -> Made:
    return [_user(random)], _tools(random, SCHEMAS), {}


def _bare_tools(random: Random, _: Format) -> Made:
    """Declarations without all that a declaration may do without, and with what few have."""
    made = _tools(random)
    for tool in made:
        function = tool["function"]
        for key in random.sample(("description", "parameters"), random.randint(0, 2)):
            del function[key]
        if random.random() < 0.5:
            function["strict"] = True
    return [_user(random)], made, {}


def _with_system(random: Random, format: Format) -> Made:
    return [{"role": "system", "content": random.choice(("", *TEXTS))}, _user(random)], _tools(random), {}


def _called(random: Random, number: int, tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
    arguments = {key: random.choice(VALUES) for key in random.sample(KEYS, random.randint(0, 3))}
    function = {"name": random.choice(tools)["function"]["name"], "arguments": arguments}
    return {"id": f"call_{number}", "type": "function", "function": function}


def _calling(random: Random, tools: Sequence[dict[str, Any]], count: int, content: str | None = None) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "tool_calls": [_called(random, number, tools) for number in range(count)]}
    return message if content is not None or random.random() < 0.5 else {key: message[key] for key in ("role", "tool_calls")}


def _call(random: Random, _: Format) -> Made:
    tools = _tools(random)
    return [_user(random), _calling(random, tools, 1)], tools, {}


def _untold_call(random: Random, _: Format) -> Made:
    return [_user(random), _calling(random, _tools(random), 1)], None, {}


def _parallel(random: Random, _: Format) -> Made:
    tools = _tools(random)
    return [_user(random), _calling(random, tools, random.randint(2, 3))], tools, {}


def _speaking(random: Random, _: Format) -> Made:
    tools = _tools(random)
    return [_user(random), _calling(random, tools, 1, random.choice(("", *TEXTS)))], tools, {}


def _thinking_call(random: Random, _: Format) -> Made:
    tools = _tools(random)
    return [_user(random), {**_calling(random, tools, 1), "reasoning_content": random.choice(TEXTS)}], tools, {}


def _results(random: Random, calling: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "tool", "tool_call_id": call["id"], "content": random.choice(("", *TEXTS))} for call in calling["tool_calls"]]


def _answered(random: Random, _: Format) -> Made:
    tools = _tools(random)
    calling = _calling(random, tools, random.randint(1, 3))
    messages = [_user(random), calling, *_results(random, calling)]
    return [*messages, _thinking(random)] if random.random() < 0.5 else messages, tools, {}


def _shuffled(random: Random, _: Format) -> Made:
    tools = _tools(random)
    calling = _calling(random, tools, 3)
    return [_user(random), calling, *random.sample(_results(random, calling), random.randint(1, 3))], tools, {}


def _parts(random: Random, _: Format) -> Made:
    parts = [{"type": "text", "text": random.choice(TEXTS)} for _ in range(random.randint(1, 3))]
    return [{"role": "user", "content": parts}], None, {}


def _media(random: Random, format: Format) -> Made:
    known = [part for part in MEDIA if part["type"] in format.parts] or MEDIA[:1]
    media: list[dict[str, Any]] = random.sample(known, random.randint(1, min(2, len(known))))
    parts = [*media, {"type": "text", "text": random.choice(TEXTS)}]
    random.shuffle(parts)
    return [{"role": "user", "content": parts}], None, {}


def _blank(random: Random, _: Format) -> Made:
    return [_user(random, BLANK_TEXTS), {**_assistant(random, BLANK_TEXTS), "reasoning_content": random.choice(BLANK_TEXTS)}], None, {}


def _nothing(random: Random, _: Format) -> Made:
    content = random.choice((None, ""))
    message: dict[str, Any] = {"role": "assistant", "content": content, "reasoning_content": random.choice((None, "", "hm"))}
    return [_user(random, ("", "hello")), message], None, {}


def _marked(random: Random, format: Format) -> Made:
    """Texts that hold the format's own control tokens."""
    tokens = format.special_tokens
    texts = [f"a{random.choice(tokens)}b" for _ in range(3)] if tokens else TEXTS
    return [_user(random, texts), _assistant(random, texts)], None, {}


_FEATURES: dict[str, Callable[[Random, Format], Made]] = {
    "plain": _plain,
    "generation prompt": _generation,
    "multi-turn": _turns,
    "system": _system,
    "late system": _late_system,
    "other roles": _other_role,
    "reasoning": _thinking_turn,
    "reasoning, multi-turn": _thinking_turns,
    "tools": _declared,
    "tool schemas": _schemas,
    "bare tools": _bare_tools,
    "tools and system": _with_system,
    "calls": _call,
    "calls without tools": _untold_call,
    "parallel calls": _parallel,
    "calls with content": _speaking,
    "calls with reasoning": _thinking_call,
    "tool results": _answered,
    "results out of order": _shuffled,
    "text parts": _parts,
    "media": _media,
    "blanks": _blank,
    "nothing said": _nothing,
    "control tokens in text": _marked,
}


def _option_value(random: Random, option: Option, number: int) -> Any:
    """One of the values that an option declares, each in its turn, else one of its types."""
    if option.values:
        return option.values[number // 4 % len(option.values)]
    made: dict[type, Callable[[], Any]] = {
        bool: lambda: random.random() < 0.5,
        str: lambda: random.choice(TEXTS),
        int: lambda: random.randint(0, 600),
        float: lambda: round(random.random() * 0.99, 2),
        type(None): lambda: None,
        datetime: lambda: datetime(2026, random.randint(1, 12), random.randint(1, 28), 12),
        date: lambda: date(2026, random.randint(1, 12), random.randint(1, 28)),
        dict: lambda: random.choice(({"type": "json_object"}, {"type": "json_schema", "json_schema": {"schema": random.choice(SCHEMAS)}})),
        list: lambda: random.sample(NAMES, random.randint(0, 2)),
    }
    return made[random.choice(option.types)]()
