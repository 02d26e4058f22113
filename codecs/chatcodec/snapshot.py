"""The state of a stream as JSON text, and back.

Rules of this module: the classes that a state is made of are listed here, so that reading a state runs nobody's code; what
follows from the format or from the tools (tables, signatures) is not saved but made anew.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from .assembler import Assembler, OpenCall, TextRun
from .errors import CodecError, Diagnostic
from .events import ArgumentsDelta, ContentDelta, Diagnosed, ReasoningDelta, ToolCallDropped, ToolCallEnd, ToolCallStart
from .jsonstream import CallScanner
from .machine import Machine
from .reply import PartialCall, Segment, Ways
from .values import NO_SIGNATURE, Signature, signature_of

VERSION = 1
_EVENTS = (ReasoningDelta, ContentDelta, ToolCallStart, ArgumentsDelta, ToolCallEnd, ToolCallDropped, Diagnosed)
_PLAIN = {kind.__name__: kind for kind in (Machine, Assembler, TextRun, OpenCall, CallScanner, Segment, PartialCall, *_EVENTS)}
_MADE_ANEW = frozenset(("nodes", "open", "ways", "spell"))


def dump(format: str, start: str, machine: Machine, text: list[str] | None) -> str:
    """The JSON text of a stream."""
    try:
        return json.dumps({"version": VERSION, "format": format, "start": start, "machine": _out(machine), "text": text})
    except (TypeError, ValueError, RecursionError) as error:
        raise CodecError(f"{format}: this stream cannot be saved as JSON: {error}") from None


def with_detokenizer(saved: str, state: list[Any]) -> str:
    """The same with the state of a detokenizer."""
    return json.dumps(json.loads(saved) | {"detokenizer": state})


def load(saved: str) -> dict[str, Any]:
    """What `dump` wrote, with its machine still as plain data.  Raises CodecError."""
    try:
        state: dict[str, Any] = json.loads(saved)
        version, _ = state["version"], (state["format"], state["start"], state["machine"], state["text"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _no_stream(error) from None
    if version != VERSION:
        raise CodecError(f"a saved stream of version {version!r}; this library reads version {VERSION}")
    return state


def restore(state: dict[str, Any], ways: Ways, spell: Callable[[str], str] | None) -> tuple[Machine, Assembler]:
    """The machine of a state, without its nodes, and what it fills.  Raises CodecError."""

    def prepare(sink: Assembler) -> None:
        sink.ways, sink.spell = ways, spell

    try:
        machine = _in(state["machine"], prepare)
        sink = machine.sink
        if not isinstance(machine, Machine) or not isinstance(sink, Assembler):
            raise TypeError("no machine in it")
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise _no_stream(error) from None
    return machine, sink


def _no_stream(error: Exception) -> CodecError:
    return CodecError(f"this is no saved stream ({type(error).__name__}: {error})")


def _out(value: Any) -> Any:
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Diagnostic):
        return {"Diagnostic": [*value]}
    if isinstance(value, Signature):
        return {"Signature": value is not NO_SIGNATURE}
    if isinstance(value, list):
        return [_out(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_out(item) for item in value]}
    if isinstance(value, (set, frozenset)):
        return {"set": sorted(value)}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a key that is no string")
        return {"dict": {key: _out(item) for key, item in value.items()}}
    name = type(value).__name__
    if _PLAIN.get(name) is not type(value):
        raise TypeError(f"a {name}")
    slots: tuple[str, ...] = getattr(value, "__slots__", ())
    members = {key: getattr(value, key) for key in slots} or vars(value)
    return {name: {key: _out(member) for key, member in members.items() if key not in _MADE_ANEW}}


def _in(value: Any, prepare: Callable[[Assembler], None]) -> Any:
    if isinstance(value, list):
        return [_in(item, prepare) for item in value]
    if not isinstance(value, dict):
        return value
    ((name, held),) = value.items()
    if name == "dict":
        return {key: _in(item, prepare) for key, item in held.items()}
    if name == "tuple":
        return tuple(_in(item, prepare) for item in held)
    if name == "set":
        return frozenset(held)
    if name == "Diagnostic":
        code, detail, span, severity = held
        return Diagnostic(code, detail, (span[0], span[1]), severity)
    if name == "Signature":
        return held
    made = object.__new__(_PLAIN[name])
    for key, member in held.items():
        setattr(made, key, _in(member, prepare))
    if isinstance(made, Assembler):
        prepare(made)
        call = made.call
        if call is not None and "signature" in vars(call):
            functions = made.tools or {}
            known = bool(call.signature) and call.name in functions
            call.signature = signature_of(functions[str(call.name)]) if known else NO_SIGNATURE
    return made
