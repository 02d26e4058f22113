"""A bound on processor time, so that a reader whose time is not linear fails where it would hang.

It says nothing about speed: `benchmarks` does.  Bounds are many times what the work takes, on texts so long that quadratic
work would take minutes.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TooSlow(AssertionError):
    """The work went on for longer than it may."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises TooSlow inside the block once it has used so many seconds of this process."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooSlow(f"still at work after {seconds} seconds: far from linear")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
