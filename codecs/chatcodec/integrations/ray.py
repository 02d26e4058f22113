"""Conversions on Ray: the files of a data set are spread over a cluster, each read and converted where there is room.

Rules of this module:

* the work is that of `workers`, done by `map_batches` of Ray Data: the same chunks, the same row function, the same bytes;
* the driver writes the output and adds up what was lost, so checkpoints, rejects and reports are those of any conversion;
* a file is read by one task, so a data set should have many files; all machines must see them under the same paths.
"""

import logging
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ..convert import Plan
from ..data.files import PIPE
from ..data.pipeline import CHECKPOINT_SECONDS, OnLoss, Progress
from ..data.pipeline import convert as convert_by
from ..data.tally import Tally
from ..data.workers import Input, Result, Run, convert_here
from ..errors import CodecError


def convert(
    source: str,
    target: str,
    plan: Plan,
    *,
    jobs: int | None = None,
    on_loss: OnLoss = "keep",
    rejects: str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Tally:
    """Convert the rows of a file or a directory as `pipeline.convert` does, on the Ray cluster at hand or one of this machine.

    `jobs` is the most files that are converted at a time; without it Ray decides.  Raises as `pipeline.convert` does, and
    CodecError where Ray is not installed.
    """
    if source == PIPE:
        raise CodecError("standard input cannot be spread over a cluster; convert it locally")
    return convert_by(
        source, target, plan, on_loss=on_loss, rejects=rejects, resume=resume, progress=progress,
        checkpoint_seconds=checkpoint_seconds, workers=partial(ray_workers, jobs),
    )  # fmt: skip


@contextmanager
def ray_workers(jobs: int | None = None) -> Iterator[Run]:
    """Convert on Ray; what starts here ends here, and a cluster that is connected already is left as it is."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise CodecError('Ray is needed for this and is not installed: pip install "chatcodec[ray]"') from None
    started = not ray.is_initialized()
    if started:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    try:
        yield partial(_convert, jobs)
    finally:
        if started:
            ray.shutdown()


def _convert(jobs: int | None, inputs: Sequence[Input]) -> Iterator[Result]:
    import ray.data
    from ray.exceptions import RayError

    if not inputs:
        return
    items = [{"input": pickle.dumps(each)} for each in inputs]
    spread = ray.data.from_items(items, override_num_blocks=len(items))
    spread.context.execution_options.preserve_order = True
    spread.context.enable_progress_bars = spread.context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)  # it tells of every execution, where a command shows its own
    done = spread.map_batches(partial(_convert_batch, str(Path.cwd())), batch_size=1, concurrency=jobs)
    order = {each: index for index, each in enumerate((each.shard, each.number) for each in inputs)}
    last = 0
    try:
        for row in done.iter_rows():
            if row["error"]:
                raise CodecError(row["error"])
            result: Result = pickle.loads(row["result"])
            place = order[result.input.shard, result.input.number]
            if place < last:
                raise CodecError("Ray gave the results of files out of order")
            last = place
            yield result
    except RayError as error:
        raise CodecError(f"Ray: {str(error).strip().splitlines()[-1]}") from None


def _convert_batch(folder: str, batch: Mapping[str, Any]) -> Iterator[dict[str, list[Any]]]:
    """What a task does: read a file, and give its chunks converted, one at a time."""
    for given in batch["input"]:
        try:
            for result in convert_here([pickle.loads(given)], folder=folder):
                yield {"result": [pickle.dumps(result)], "error": [""]}
        except CodecError as error:
            yield {"result": [b""], "error": [str(error)]}
