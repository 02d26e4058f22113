"""The registry: one line a format.

A format's module is `formats/<name>.py` and declares `FORMAT`; its grammar is `grammars/<name>.lark`.  Modules are imported
when they are asked for.
"""

from functools import cache
from importlib import import_module

from ..errors import UnknownFormatError
from ..format import Format

FORMATS = (
    "harmony_xml",
    "inkling",
    "qwen3_5",
    "solar_open2",
)


def list_formats() -> list[str]:
    """The names of all formats, sorted."""
    return sorted(FORMATS)


@cache
def get_format(name: str) -> Format:
    """The format of that name.  Raises UnknownFormatError, which names the near misses."""
    if name not in FORMATS:
        raise UnknownFormatError(name, list_formats())
    found: Format = import_module(f"{__name__}.{name}").FORMAT
    return found
