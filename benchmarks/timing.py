"""Measuring: several contestants in one race, so that the machine's noise hits all of them alike.

Rules of this module:

* a *lap* is one measurement of one contestant and gives seconds for one item (a call, a delta, a conversation): seconds of
  this process, so that a busy machine counts as little as it can;
* a race runs the laps in turn, round by round, and keeps each contestant's best;
* the garbage collector is off during a lap, and what was alive before the race is frozen, so that nobody pays for
  scanning fixtures; the rubbish of a round is collected between rounds.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from time import perf_counter, process_time

Lap = Callable[[], float]


def lap(work: Callable[[], object], per: int = 1, seconds: float = 0.01) -> Lap:
    """A lap that runs `work`, which does `per` items, as often as fits into `seconds`, and at least once."""
    once = _time(work, 1)
    if once < seconds:
        once = _time(work, 1)  # the first run paid for cold caches
    number = max(1, int(seconds / max(once, 1e-7)))
    return lambda: _time(work, number) / (number * per)


def _time(work: Callable[[], object], number: int) -> float:
    start = process_time()
    for _ in repeat(None, number):
        work()
    return process_time() - start


def race(laps: dict[str, Lap], seconds: float, least: int) -> dict[str, float]:
    """Each contestant's best lap, in rounds that go on for about `seconds` and number at least `least`."""
    best = dict.fromkeys(laps, float("inf"))
    names = list(laps)
    rounds = 0
    with _quiet():
        start = perf_counter()
        while rounds < least or perf_counter() - start < seconds:
            for name in names:
                best[name] = min(best[name], laps[name]())
            names.append(names.pop(0))  # nobody always comes right after the same one
            gc.collect()
            rounds += 1
    return best


@contextmanager
def _quiet() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
