"""What a turn that was cut off still needs, by the format's own grammar.

Rules of this module:

* the turn is closed by the least text of markers that leads from where it stands to its end: what is open is ended, nothing
  is begun that does not have to be;
* a marker that the text has begun is completed;
* the strict grammar of a prompt is asked first, which knows the canonical spelling; a turn that it does not know is closed by
  the tolerant grammar of completions.
"""

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from ..errors import DIAGNOSTICS, CodecError
from ..grammar import Step, Tables, compile_tables
from ..machine import Machine
from ..prompt import Misfit
from ..sink import Unexpected
from .stops import stop_strings

if TYPE_CHECKING:
    from ..format import Format


def closing_of_prompt(format: "Format", text: str) -> str | None:
    """What closes the turn of the model that is open at the end of a prompt; None where the text is no prompt of the format so far."""
    nodes, depth = format.nodes("prompt")
    reader = format._prompt_reader()
    machine = Machine(nodes, reader, depth)
    try:
        machine.feed(text)
    except (Unexpected, Misfit):
        return None
    tables = compile_tables(format.name, "prompt")
    return _path(tables, machine.state, text[machine.offset :], stop_strings(format), whole=True)


def closing_of_completion(format: "Format", text: str, prompt: str, stop: str) -> str:
    """What closes a completion, up to and with the stop string that it should have; nothing where it has one."""
    if text.endswith(stop_strings(format)):
        return ""
    _, machine, start = format._open(None, None, prompt, "recover", False, {})
    machine.feed(text)
    if machine.trial is not None:  # a call that its reasoning ran into: closed as the call that it looks like
        machine = machine.trial
    found = _path(compile_tables(format.name, start), machine.state, text[machine.offset :], (stop,), whole=False)
    if found is None:
        raise CodecError(f"{format.name}: nothing closes a turn that stands as this one does")
    return found


def _path(tables: Tables, state: int, pending: str, stops: tuple[str, ...], *, whole: bool) -> str | None:
    """The least text of markers from a state to a turn's end; with `whole` the prompt may end there.

    `pending` is the end of the text, which may be the beginning of these markers; else it is text of a run.
    """
    found = _walk(tables, state, pending, stops, whole)
    if found is None and pending:
        open_run = tables.states[state].enter if tables.states[state].run is None else state
        found = _walk(tables, state if open_run is None else open_run, "", stops, whole)
    return found


def _walk(tables: Tables, start: int, pending: str, stops: tuple[str, ...], whole: bool) -> str | None:
    """Shortest first: a place is a state, and how much of the pending text is not yet accounted for."""
    queue: list[tuple[int, str, int, str]] = [(0, "", start, pending)]
    seen = set()
    while queue:
        cost, path, number, rest = heappop(queue)
        if number < 0:
            return path
        if (number, rest) in seen:
            continue
        seen.add((number, rest))
        for literal, step in tables.states[number].steps.items():
            if rest.startswith(literal):
                after, more = rest[len(literal) :], ""
            elif literal.startswith(rest):
                after, more = "", literal[len(rest) :]
            else:
                continue
            target = step.target
            if literal.startswith(stops):
                if after or (whole and not tables.states[target].complete):
                    continue
                target = -1
            heappush(queue, (cost + len(more) + _oddity(step), path + more, target, after))
    return None


def _oddity(step: Step) -> int:
    """What a marker costs beside its length: it should be one that says nothing odd of the turn."""
    if step.recovery or step.tentative:
        return 100_000
    aliases = {alias for _, _, alias, _ in (*step.before, *step.after) if alias}
    return 1000 * sum(1 for alias in aliases if alias in DIAGNOSTICS or alias.startswith("unclosed"))
