"""verdict: what limits the rate of a chain, and what changing it would give."""

from __future__ import annotations

from collections.abc import Sequence

from ..classes import dataclass
from .model import Change, Model, Part

__all__ = ["Verdict", "WhatIf", "judge"]

WORTH = 1.15
"""The least predicted rate, relative to the present one, for which a step counts as the bottleneck."""

ENOUGH = 0.97
"""A queue is large enough if no larger one gives more than its gain divided by this."""

FREE = 0.7
"""A queue is the bottleneck if it gives this share of what the best other change gives: it costs nothing but memory."""

ROOMS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A change, and what it is predicted to give.

    Attributes:
        kind: the kind of bottleneck that it mends, see `Verdict`.
        step: the step that it is about.
        line: ``file:line`` where the user wrote it.
        change: in words.
        gain: the rate after it, divided by the present one.
    """

    kind: str
    step: str
    line: str
    change: str
    gain: float

    @property
    def where(self) -> tuple[str, str]:
        """Step and line, see `Part`."""
        return self.step, self.line

    def __str__(self) -> str:
        percent = (self.gain - 1) * 100
        return f"{self.change}: {f'{percent:+.0f} %' if percent >= 1 else 'nothing gained'}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What limits the rate.

    Attributes:
        kind: "storage", "parse" (parsing and other host work), "decode" (a stage's executor), "python" (a user's
            function), "loop" (the user's own work on an element), "queue" (the loop and the chain take turns, for want
            of a queue between them or a larger one), "step" (any other step), or "balanced".
        step: the step in words; "" if balanced.
        line: ``file:line`` where the user wrote it, or "".
        share: of the time of one step of the loop that this work takes, divided by its workers.
        mend: what to change, with the predicted gain; None if balanced.
        others: other changes, the largest gain first.
    """

    kind: str
    step: str
    line: str
    share: float
    mend: WhatIf | None
    others: tuple[WhatIf, ...]

    def __str__(self) -> str:
        if self.mend is None:
            best = max((one.gain for one in self.others), default=1.0)
            return f"balanced: no single step limits the rate; the best single change gives {max(0, best - 1):.0%}"
        where = f"{self.step}{f' at {self.line}' if self.line else ''}"
        return f"the bottleneck is {_KINDS[self.kind]}: {where}, {self.share:.0%} of the time of a step\n  {self.mend}"


_KINDS = {
    "storage": "storage",
    "parse": "work on the host",
    "decode": "a stage's executor",
    "python": "a Python function",
    "loop": "the loop's own work",
    "queue": "the queue before the loop",
    "step": "a step",
}

_OF_METERS = {"storage": "storage", "host": "parse", "executor": "decode", "python": "python", "workers": "python"}


def judge(model: Model) -> Verdict:
    """Find the bottleneck: the one thing whose doubling, or for a queue whose growing, raises the rate most."""
    found = []
    steps = list(dict.fromkeys(part.where for part in model.parts if part.seconds > 0))
    for where in steps:
        step, line = where
        kind = _kind([part for part in model.parts if part.where == where])
        several = f" at {line}" if [name for name, _ in steps].count(step) > 1 else ""
        gain = model.gain(Change({where: 0.5}))
        found.append(WhatIf(kind, step, line, f"{step}{several} in half the time", gain))
    loop = WhatIf("loop", "the loop", "", "the loop's own work in half the time", model.gain(Change(loop=0.5)))
    found += [loop] if model.loop > 0 else []
    queue = _queue(model)
    found.sort(key=lambda one: -one.gain)
    best = found[0] if found else None
    if queue is not None and (best is None or queue.gain - 1 >= FREE * (best.gain - 1)):
        best = queue
    others = [one for one in (*found, *([queue] if queue else ())) if one is not best and one.gain >= 1.01]
    others.sort(key=lambda one: -one.gain)
    if best is None or best.gain < WORTH:
        return Verdict("balanced", "", "", 0.0, None, tuple(filter(None, (best, *others)))[:4])
    mends = [best, *_mends(model, best)]
    mend = next((one for one in mends[1:] if one.gain >= WORTH), best)
    rest = [one for one in (*mends, *others) if one is not mend][:4]
    return Verdict(best.kind, best.step, best.line, _share(model, best), mend, tuple(rest))


def _kind(parts: Sequence[Part]) -> str:
    """The kind of bottleneck that a step would be: that of its largest part."""
    return _OF_METERS.get(max(parts, key=lambda part: part.seconds).kind, "step")


def _share(model: Model, best: WhatIf) -> float:
    total = model.seconds()
    if best.kind == "loop":
        return min(1.0, model.loop / total)
    if best.kind == "queue":
        return 1.0
    parts = [part for part in model.parts if part.where == best.where]
    return min(1.0, max(part.seconds / model.resources[part.resource].workers for part in parts) / total)


def _queue(model: Model) -> WhatIf | None:
    """The smallest queue before the loop that gives nearly all that a queue can give; None if there is one already."""
    queue = model.queue
    now = 0 if queue is None else queue.most
    gains = {room: model.gain(Change(room=room)) for room in ROOMS if room > now}
    most = max(gains.values(), default=1.0)
    if most < 1.01:
        return None
    room = next(room for room, gain in gains.items() if gain >= most * ENOUGH)
    room = max(room, 2)
    step, line = ("the end of the chain", "") if queue is None else (queue.step, queue.line)
    said = f"prefetch({room}){f' instead of {now} waiting' if now else ' at the end of the chain'}"
    return WhatIf("queue", step, line, said, gains[room])


def _mends(model: Model, best: WhatIf) -> list[WhatIf]:
    """What a user can write to make a bottleneck faster, with the gains, the first the best to try."""
    parts = [part for part in model.parts if part.where == best.where]
    largest = max(parts, key=lambda part: part.seconds) if parts else None

    def mend(text: str, change: Change) -> WhatIf:
        return WhatIf(best.kind, best.step, best.line, text, model.gain(change))

    if best.kind == "python" and largest is not None and not best.step.startswith(("from_generator", "scan")):
        pool = model.resources[largest.resource]
        count = 2 * pool.workers if largest.kind == "workers" else 2
        threads = mend(f"num_parallel_calls={count}", Change(workers=(best.where, count, False)))
        processes = mend(f'num_parallel_calls={count}, workers="process"', Change(workers=(best.where, count, True)))
        return [processes, threads] if processes.gain > threads.gain * 1.1 else [threads, processes]
    if best.kind == "decode" and largest is not None:
        pool = model.resources[best.step]
        if pool.workers < model.cores and "GPU" not in best.step:
            factor = pool.workers / model.cores
            return [mend(f"Options(threads={model.cores})", Change({best.where: factor}))]
    return []


def advice(verdict: Verdict) -> str:
    """What usually helps against a bottleneck of this kind, where no setting does; "" if there is nothing to say."""
    return _ADVICE.get(verdict.kind, "")


_ADVICE = {
    "storage": "a local disk, fewer and larger reads (records in shards), interleave(num_parallel_calls=), or cache()",
    "parse": "fewer features, smaller ones, or cache() after them",
    "decode": "smaller images (resize them once), DALI instead of NumPy, which decodes the crop alone, or a GPU",
    "python": "ops instead of Python, so that the function is traced",
    "loop": "the chain is fast enough: only the loop's own work can be made faster",
    "queue": "",
    "step": "cache() after it",
}
