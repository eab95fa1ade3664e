"""far_steps: how long ranks that step together wait for their slowest, by an event simulation."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

__all__ = ["ANSWER", "LATE", "PAUSE", "answers", "handed_out", "in_step"]

ANSWER = 0.05
"""Seconds of most answers: the median; they vary by a third."""

LATE = ((0.01, 0.5), (0.0001, 10.0))
"""Of all requests, which part takes how many seconds: an assumption, not a measurement."""

PAUSE = 0.1
"""Seconds before a request that was given up is made again."""


def answers(draw: np.random.Generator, shape: tuple[int, ...], timeout: float | None) -> Any:
    """Seconds of requests, those that were given up after `timeout` and made again included."""
    seconds = ANSWER * np.exp(draw.normal(0, 1 / 3, shape))
    luck = draw.random(shape)
    for share, late in LATE:
        seconds[luck < share] = late
    if timeout is None:
        return seconds
    given_up = seconds > timeout
    if given_up.any():
        again = answers(draw, (int(given_up.sum()),), timeout)
        seconds[given_up] = timeout + PAUSE + again
    return seconds


def in_step(
    ranks: int,
    ahead: int,
    *,
    window: int,
    ranges: int,
    rows: int,
    rate: float,
    windows: int,
    timeout: float | None = None,
    seed: int = 1,
) -> float:
    """The share of its time that a training computes, where each step waits for the batch of every rank.

    A rank requests all ranges of its next window as soon as the first of that window's records is `ahead` records
    away, and at least one batch; a batch is there when the ranges are that its rows are in. Windows of ranks end at
    different times.

    Args:
        ranks: how many.
        ahead: records that are requested before they are needed.
        window: records of a window.
        ranges: of a window.
        rows: of a rank in a batch.
        rate: records a second that a rank uses.
        windows: how many are simulated.
        timeout: seconds after which a request is given up and made again; None: never.
        seed: of the random numbers.
    """
    draw = np.random.default_rng(seed)
    steps, each, step = windows * window // rows, window // rows, rows / rate
    phase = np.arange(ranks) * each // ranks
    lead = min(max(ahead // rows, 1), each)
    now = 0.0
    arrived, coming = np.zeros((ranks, ranges)), np.zeros((ranks, ranges))
    asked = np.zeros(ranks, bool)
    every = np.arange(ranks)[:, None]
    for number in range(steps):
        at = (number + phase) % each
        asking = (at >= each - lead) & ~asked  # the next window
        if asking.any():
            coming[asking] = now + answers(draw, (int(asking.sum()), ranges), timeout)
            asked |= asking
        begun = at == 0
        if begun.any():
            fresh = begun & ~asked
            coming[fresh] = now + answers(draw, (int(fresh.sum()), ranges), timeout)
            arrived[begun] = coming[begun]
            asked[begun] = False
        needed = arrived[every, draw.integers(0, ranges, (ranks, rows))]
        now = max(now, float(needed.max())) + step
    return steps * step / now


def handed_out(workers: int, slower: float, ahead: int, *, segment: int, batches: int, seed: int = 1) -> float:
    """The share of what workers could make that arrives in order, where one of them is slower.

    Args:
        workers: how many.
        slower: how many times the time of the others one of them takes.
        ahead: segments for each worker that are asked for before they are needed; 0 gives each every n-th segment
            beforehand, and 4 of them ahead.
        segment: batches of a segment.
        batches: how many are simulated.
        seed: of the random numbers.
    """
    draw = np.random.default_rng(seed)
    speeds = [1.0] * (workers - 1) + [slower]
    window = workers * (ahead or 4)
    free = [(0.0, worker) for worker in range(workers)]
    heapq.heapify(free)
    done, delivered = [0.0] * workers, [0.0]
    for number in range(batches // segment):
        seconds = float(np.exp(draw.normal(0, 0.2, segment)).sum())
        earliest = delivered[max(0, number + 1 - window)]
        if ahead:
            begin, worker = heapq.heappop(free)
        else:
            worker = number % workers
            begin = done[worker]
        end = max(begin, earliest) + speeds[worker] * seconds
        if ahead:
            heapq.heappush(free, (end, worker))
        else:
            done[worker] = end
        delivered.append(max(delivered[-1], end))
    possible = workers - 1 + 1 / slower
    mean = float(np.exp(0.02))  # of the lognormal distribution
    return batches // segment * segment * mean / delivered[-1] / possible
