"""What a worker does: a chunk of rows in, the bytes of the converted ones out, and what came of each.

Rules of this module: a chunk is converted by itself, from nothing but the chunk and the work order, so that it comes out the
same in any process, on any machine, and in any run.
"""

import json
from typing import Any, Literal, NamedTuple

from ..convert import Outcome, Plan, Refusal, convert_row
from .files import Chunk
from .tables import BadRow, Row, rows_of
from .tables_out import Kind, Kinds, cells_of, is_table, line_of, pack, stage
from .tally import Place, Tally, note

OnLoss = Literal["keep", "reject", "fail"]
NOT_JSON = "not_json"  #: the code of a refusal: a value of the row has no place in JSON


class Work(NamedTuple):
    """What to do with chunks: the plan, what to do with rows that lose something, and what kinds of files are written."""

    plan: Plan
    on_loss: OnLoss
    kind: Kind
    rejects: Kind | None


class Done(NamedTuple):
    """A chunk that is converted.

    `out` are its bytes in the output (or in what a table is assembled from), `rejects` those in the file of rejects.
    `failure` is the first loss, where one ends the conversion.
    """

    out: bytes
    rejects: bytes
    kinds: Kinds
    tally: Tally
    failure: tuple[str, Place] | None = None


def convert_chunk(chunk: Chunk, work: Work) -> Done:
    """Convert the rows of a chunk."""
    tally = Tally()
    made: list[Any] = []
    rejects: list[bytes] = []
    encode = cells_of if is_table(work.kind) else line_of
    failure = None
    for number, row in rows_of(chunk):
        tally.read += 1
        if isinstance(row, BadRow):
            outcome = Outcome(None, refusal=Refusal(row.code, "", row.reason))
        else:
            outcome = convert_row(row, work.plan)
        encoded: Any = None
        refusal = outcome.refusal
        if refusal is None and outcome.row is not None:
            try:
                encoded = encode(outcome.row)
            except (ValueError, TypeError, RecursionError) as error:
                refusal = Refusal(NOT_JSON, "", f"a value that JSON cannot hold: {error or 'it nests too deeply'}")
        if refusal is not None:
            tally.refused += 1
            note(tally.refusals, refusal.code, Place(chunk.file, number, refusal.path, refusal.reason))
            if work.rejects:
                rejects.append(_reject(chunk.file, number, row, refusal, outcome))
            continue
        _note_all(tally, outcome, chunk.file, number)
        if outcome.losses and work.on_loss == "fail":
            loss = outcome.losses[0]
            failure = loss.code, Place(chunk.file, number, loss.path, loss.detail)
            break
        if outcome.losses and work.on_loss == "reject":
            tally.rejected += 1
            if work.rejects:
                loss = outcome.losses[0]
                because = Refusal(loss.code, loss.path, "the converted row would lose this" + (f" ({loss.detail})" if loss.detail else ""))
                rejects.append(_reject(chunk.file, number, row, because, outcome))
            continue
        tally.written += 1
        made.append(encoded)
    kinds: Kinds = {}
    if is_table(work.kind):
        out, kinds = stage(made)
    else:
        out = pack(b"".join(made), work.kind)
    return Done(out, pack(b"".join(rejects), work.rejects or "lines"), kinds, tally, failure)


def _note_all(tally: Tally, outcome: Outcome, file: str, number: int) -> None:
    if outcome.losses:
        tally.lossy += 1
        seen: set[str] = set()
        for loss in outcome.losses:
            note(tally.losses, loss.code, Place(file, number, loss.path, loss.detail), again=loss.code in seen)
            seen.add(loss.code)
    if outcome.repairs:
        tally.repaired += 1
        seen = set()
        for repair in outcome.repairs:
            note(tally.repairs, repair.code, Place(file, number, repair.path, repair.detail), again=repair.code in seen)
            seen.add(repair.code)


def _reject(file: str, number: int, row: Row | BadRow, refusal: Refusal, outcome: Outcome) -> bytes:
    """A line of the rejects: where the row stood, why it is here, and the row, or the text that is none."""
    about: dict[str, Any] = {"file": file, "row": number, "code": refusal.code, "path": refusal.path, "reason": refusal.reason}
    if outcome.losses:
        about["losses"] = [loss._asdict() for loss in outcome.losses]
    if isinstance(row, BadRow):
        return line_of(about | {"line": row.line})
    try:
        return line_of(about | {"data": row})
    except (ValueError, TypeError):
        return line_of(about | {"line": json.dumps(row, ensure_ascii=False, default=str)})
    except RecursionError:
        return line_of(about | {"line": None})
