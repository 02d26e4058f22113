"""What tests of conversions share: a row converted and looked at, and the parts of rows."""

from typing import Any

from chatcodec import errors
from chatcodec.convert import REFUSALS, Outcome, convert_row, plan

OBJECTS = {"arguments": "object"}


def converted(row: Any, source: str, target: str, **options: Any) -> Outcome:
    """The outcome of a row, which is sound whatever came of it."""
    outcome = convert_row(row, plan(source, target, options=options))
    assert (outcome.row is None) != (outcome.refusal is None)
    if outcome.refusal is not None:
        assert outcome.refusal.code in errors.REFUSALS | REFUSALS
        assert outcome.refusal.reason
    assert {loss.code for loss in outcome.losses} <= errors.LOSSES
    assert {repair.code for repair in outcome.repairs} <= errors.REPAIRS
    return outcome


def row_of(outcome: Outcome) -> dict[str, Any]:
    """The new row, which there must be."""
    assert outcome.row is not None, outcome.refusal
    return outcome.row


def said(outcome: Outcome) -> set[str]:
    """The codes of losses and repairs, alone and with their particulars."""
    found: list[Any] = [*outcome.losses, *outcome.repairs]
    return {one.code for one in found} | {f"{one.code}:{one.detail}" for one in found}


def a_call(name: str, arguments: Any, call_id: str = "c0") -> dict[str, Any]:
    """A tool call of an OpenAI message."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: dict[str, Any], content: str | None = None) -> dict[str, Any]:
    """An assistant message with calls."""
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def a_tool(name: str, properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A tool with these properties; `more` stands beside them in its schema."""
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties, **more}}}


GO = {"role": "user", "content": "go"}
