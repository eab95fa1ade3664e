"""far_steps: how long ranks that step together wait for their slowest, by an event simulation."""

from __future__ import annotations

import heapq

import numpy as np

__all__ = ["handed_out", "in_step"]

LATE = ((0.01, 1.0), (0.0001, 10.0))
"""Of all requests, which part takes how many seconds; the others take about `ANSWER`."""

ANSWER = 0.05
"""Seconds of most answers: the median; they vary by a third."""


def in_step(ranks: int, ahead: int, *, steps: int, step: float, needed: float, seed: int = 1) -> float:
    """The share of its time that a training computes, where each step waits for the batch of every rank.

    Args:
        ranks: how many.
        ahead: batches that a rank has requested before it needs them.
        steps: how many are simulated.
        step: seconds of computing.
        needed: requests of a rank in a step, 1 at most: the others find their records in a range that is there.
        seed: of the random numbers.
    """
    draw = np.random.default_rng(seed)
    ends = np.zeros(steps + 1)  # when step i - 1 was done
    ready = np.zeros(ranks)
    for i in range(steps):
        asked = ends[max(0, i - ahead)]
        seconds = ANSWER * np.exp(draw.normal(0, 1 / 3, ranks))
        luck = draw.random(ranks)
        for share, late in LATE:
            seconds[luck < share] = late
        seconds[draw.random(ranks) >= needed] = 0.0
        ready = np.maximum(ready, asked + seconds)  # a batch is used after those before it
        ends[i + 1] = max(ends[i], float(ready.max())) + step
    return steps * step / float(ends[-1])


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
