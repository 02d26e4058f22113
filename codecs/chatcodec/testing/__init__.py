"""For those who test a format, a template or a parser of their own: Hypothesis strategies and ready-made assertions.

    from hypothesis import given
    from chatcodec.testing import assert_round_trip, conversations

    @given(conversations("qwen3_5"))
    def test_nothing_is_lost_in_silence(conversation):
        assert_round_trip("qwen3_5", conversation)

Assertions (they need no Hypothesis):

* `assert_round_trip(format, conversation)`: what the text does not give back is named by losses, and all readers agree;
* `assert_same_text(format, template, conversation)`: a Jinja chat template writes what the format writes.

Strategies:

* `conversations(format)`: conversations that the format can write, or with `exact=True` give back exactly;
* `completions(format)`: what a model may answer, with its prompt, tools and message;
* `tools()`, `schemas()`, `fitting(schema)`, `arguments(tool)`, `json_values()`, `options(format)`, `texts()`;
* `cuts(text)`: a text cut into chunks, to feed a stream.

Rules of this module: the strategies are imported when they are asked for; without Hypothesis that is a CodecError that names
the extra.
"""

from typing import TYPE_CHECKING, Any

from ..errors import CodecError
from .asserting import assert_round_trip, assert_same_text

if TYPE_CHECKING:
    from .carried import completions, conversations, options
    from .turns import Completion, arguments, cuts
    from .values import fitting, json_values, schemas, texts, tools

__all__ = [
    "Completion",
    "arguments",
    "assert_round_trip",
    "assert_same_text",
    "completions",
    "conversations",
    "cuts",
    "fitting",
    "json_values",
    "options",
    "schemas",
    "texts",
    "tools",
]

_HOMES = {
    "carried": ("completions", "conversations", "options"),
    "turns": ("Completion", "arguments", "cuts"),
    "values": ("fitting", "json_values", "schemas", "texts", "tools"),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{home}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "hypothesis":
            raise
        raise CodecError('hypothesis is needed for strategies and is not installed: pip install "chatcodec[testing]"') from None
    return getattr(module, name)
