"""Where a model stops: the strings and the tokens that end its turn.

Rules of this module: what ends a turn is what the format's grammar calls so, the markers whose names begin with `STOP`.
"""

from typing import TYPE_CHECKING, Any

from ..grammar import markers
from .tokenizer import adapt, token_ids

if TYPE_CHECKING:
    from ..format import Format


def stop_strings(format: "Format") -> tuple[str, ...]:
    """The strings that end a turn of the model, sorted: what an engine takes as `stop`."""
    return tuple(sorted({text for name, text in markers(format.name).items() if name.startswith("STOP")}))


def stop_tokens(format: "Format", tokenizer: Any) -> list[int]:
    """Their tokens, in the same order: what an engine takes as `stop_token_ids`.

    Raises CodecError where the tokenizer has no token of its own for one.
    """
    return token_ids(adapt(tokenizer), stop_strings(format), f"which ends a turn of {format.name}")
