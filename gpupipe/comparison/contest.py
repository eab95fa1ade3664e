"""contest: measure a chain on several executors in alternating rounds, and compare what they deliver."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any

import numpy as np

from ..classes import dataclass
from ..cpus import cpu_count
from ..dataset import Dataset
from ..errors import GpupipeError, MissingDependencyError, PlanError
from ..progress import Progress
from .accuracy import accuracies
from .comparison import Comparison
from .contestants import EXECUTORS, Contestant, Executor
from .pixels import gap_of
from .ratios import Spread, pair_order, ratios
from .result import Cost, PixelGap
from .rounds import Delivered, Round, Runner, unlike
from .steps.classes import classes_of
from .steps.compare_steps import Compared, compare_steps
from .usage.nvml import cards, first_visible
from .verdict import break_even, findings_of

__all__ = ["Request", "contest"]

MIN_ROUNDS, MAX_ROUNDS, ENOUGH_SECONDS = 3, 9, 2.0


@dataclass(frozen=True, slots=True)
class Request:
    """What to compare.

    Attributes:
        dataset: the chain.
        data: its name.
        images: of a pass, at most.
        compared: images whose pixels are compared, at most.
        steps: whether to compare step by step.
        limits: whether to find out what limits each executor.
        rate: images/s of a consumer.
        prices: "core_hour" and "gpu_hour".
        model: see `gpupipe.compare`.
        alone: whether each executor has a process of its own.
        scale: of the delivered images, see `gap_of`; steps find it out.
    """

    dataset: Dataset
    data: str
    images: int
    compared: int = 64
    steps: bool = True
    limits: bool = True
    rate: float | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    model: Callable[[Any], Any] | None = None
    alone: bool = False
    scale: Any = None


@dataclass(slots=True)
class _Entry:
    """An executor that takes part, and what was measured of it."""

    executor: Executor
    contestant: Contestant
    runner: Runner
    first: Round
    delivered: Delivered
    rounds: list[Round] = field(default_factory=list)
    cost: Cost | None = None


def contest(
    request: Request,
    keys: Sequence[str],
    enter: Callable[[Executor, Runner], Contestant],
    progress: Progress,
) -> Comparison:
    """Compare executors.

    Args:
        request: the chain, and what to measure.
        keys: of the executors; empty for all.
        enter: makes the contestant of an executor, given how it runs in this process.
        progress: shows what is being done.

    Raises:
        GpupipeError: no executor could be measured.
    """
    request = replace(request, compared=min(request.compared, request.images))
    costs: dict[str, Cost] = {}
    entries = _entries(request, keys, enter, progress, costs)
    noise = _rounds(entries, costs, progress)
    noise_of = entries[0].executor.key
    for entry in list(entries):
        with _failing(entry, entries, costs):
            costs[entry.executor.key] = _cost(entry, request, progress)
    _check_any(entries, costs)
    reference = entries[-1]
    if request.model is not None:
        progress.start("asking the model")
        for key, found in accuracies(request.model, {e.executor.key: e.runner for e in entries}).items():
            costs[key] = replace(costs[key], accuracy=found)
    steps, missing = _steps(request, entries, progress)
    return replace(_comparison(request, entries, reference, costs, steps, missing), noise=noise, noise_of=noise_of)


def _entries(
    request: Request,
    keys: Sequence[str],
    enter: Callable[[Executor, Runner], Contestant],
    progress: Progress,
    costs: dict[str, Cost],
) -> list[_Entry]:
    """Run each executor once, to warm up and to see whether it can; the others get their reason."""
    entries: list[_Entry] = []
    for executor in EXECUTORS:
        if keys and executor.key not in keys:
            continue
        costs[executor.key] = Cost(executor.key, executor.title, executor.missing())
        if costs[executor.key].reason:
            continue
        runner = Runner.on(request.dataset, executor.device, executor.backend, request.images)
        progress.start(f"first pass of {executor.title}")
        try:
            contestant = enter(executor, runner)
            first = contestant.round(lambda done: progress.update(done, _most(entries), "images"))
            entries.append(_Entry(executor, contestant, runner, first, contestant.first(request.compared)))
        except GpupipeError as error:
            costs[executor.key] = _failure(executor, error)
    return entries


def _most(entries: Sequence[_Entry]) -> int:
    """The images of a pass, which may have fewer than were asked for; 0 before the first has ended."""
    return entries[0].first.images if entries else 0


def _failure(executor: Executor, error: GpupipeError) -> Cost:
    failed = not isinstance(error, PlanError | MissingDependencyError)
    return Cost(executor.key, executor.title, str(error), failed)


@contextmanager
def _failing(entry: _Entry, entries: list[_Entry], costs: dict[str, Cost]) -> Iterator[None]:
    """An executor that fails now takes no further part; the others do."""
    try:
        yield
    except GpupipeError as error:
        entries.remove(entry)
        costs[entry.executor.key] = _failure(entry.executor, error)


def _check_any(entries: Sequence[_Entry], costs: Mapping[str, Cost]) -> None:
    if not entries:
        why = "; ".join(f"{cost.title}: {cost.reason}" for cost in costs.values())
        cannot = not any(cost.failed for cost in costs.values())
        raise (PlanError if cannot else GpupipeError)(f"no executor could be measured: {why}")


def _rounds(entries: list[_Entry], costs: dict[str, Cost], progress: Progress) -> Spread:
    """The noise of rounds in which all run in turn; they begin anew without an executor that fails."""
    while True:
        _check_any(entries, costs)
        count = len(entries)
        for entry in entries:
            entry.rounds.clear()
        again = _measured(entries, costs, progress)
        if len(entries) == count:
            return ratios([_rate(one) for one in again], [_rate(one) for one in entries[0].rounds])


def _measured(entries: list[_Entry], costs: dict[str, Cost], progress: Progress) -> list[Round]:
    """Let all run in turn, every second time in the other order; return rounds of the first against itself."""
    again: list[Round] = []
    seconds, count, all_of = 0.0, 0, len(entries)
    progress.start("measuring")
    while count < MIN_ROUNDS or (seconds < ENOUGH_SECONDS * len(entries) and count < MAX_ROUNDS):
        order = list(entries) if pair_order(count)[0] == 0 else entries[::-1]
        for entry in order:
            with _failing(entry, entries, costs):
                entry.rounds.append(entry.contestant.round())
                seconds += entry.rounds[-1].seconds
        if len(entries) == all_of:
            with _failing(entries[0], entries, costs):
                again.append(entries[0].contestant.round())
        if len(entries) < all_of:
            break
        count += 1
        progress.update(count, MAX_ROUNDS, "rounds at most")
    return again


def _rate(one: Round) -> float:
    return one.timed / one.seconds


def _cost(entry: _Entry, request: Request, progress: Progress) -> Cost:
    executor, rounds = entry.executor, entry.rounds
    bottleneck = remedy = ""
    if request.limits:
        progress.start(f"what limits {executor.title}")
        bottleneck, remedy = entry.contestant.bottleneck()
    waiting = None
    if request.rate is not None:
        progress.start(f"a consumer of {executor.title}")
        waiting = entry.contestant.waiting(request.rate)
    on_gpu = executor.device == "gpu"
    peaks = [one.peak for one in rounds if one.peak is not None]
    return Cost(
        key=executor.key,
        title=executor.title,
        images=rounds[0].images,
        cpu_ms=Spread.of([one.cpu / one.timed * 1e3 for one in rounds]),
        rate=Spread.of([_rate(one) for one in rounds]),
        first_batch_s=entry.first.first_batch_s,
        host_bytes=max(peaks, default=None),
        gpu_bytes=max((one.gpu.peak for one in (entry.first, *rounds) if one.gpu.peak is not None), default=None)
        if on_gpu
        else None,
        gpu_load=_mean([one.gpu.load for one in rounds]) if on_gpu else None,
        jpeg_load=_mean([one.gpu.jpeg_load for one in rounds]) if on_gpu else None,
        waiting=waiting,
        bottleneck=bottleneck,
        remedy=remedy,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _steps(request: Request, entries: Sequence[_Entry], progress: Progress) -> tuple[Compared, str]:
    """The steps, or why there are none."""
    if not request.steps:
        return Compared(scale=request.scale), "not asked for"
    if len(entries) < 2:
        return Compared(), "one executor only was measured"
    progress.start("comparing step by step")
    others = {entry.executor.key: entry.runner for entry in entries[:-1]}
    try:
        found = compare_steps(entries[-1].runner, others, request.compared)
    except GpupipeError as error:
        return Compared(), str(error)
    return found, "" if found.steps else "the chain has no stage with images"


def _comparison(
    request: Request,
    entries: Sequence[_Entry],
    reference: _Entry,
    costs: Mapping[str, Cost],
    found: Compared,
    missing: str,
) -> Comparison:
    others = [entry for entry in entries if entry is not reference]
    delivered, unequal, restless = _delivered(others, reference, found.scale)
    classes = classes_of(found, [entry.executor.key for entry in others])
    even = None if unequal else break_even(list(costs.values()), request.rate, request.prices)
    findings = findings_of(
        list(costs.values()), costs[reference.executor.key], delivered, unequal, restless, found.steps, classes,
        request.rate, request.prices, even,
    )  # fmt: skip
    first = reference.rounds[0]
    return Comparison(
        data=request.data,
        chain=tuple(str(reference.runner.dataset.explain()).splitlines()),
        machine=_machine(),
        images=first.images,
        batch=first.batch,
        rounds=len(reference.rounds),
        reference=reference.executor.key,
        noise=None,
        noise_of="",
        costs=tuple(costs.values()),
        delivered=delivered,
        steps=tuple(found.steps),
        steps_missing=missing,
        classes=classes,
        rate=request.rate,
        prices=dict(request.prices),
        break_even=even,
        methods=_methods(request.alone),
        findings=findings,
        pairs=tuple(found.pairs),
    )


def _delivered(
    others: Sequence[_Entry], reference: _Entry, scale: Any
) -> tuple[dict[str, PixelGap], dict[str, str], str]:
    """Compare what was delivered.

    Returns:
        The differences of the images; why an executor's work is not that of the reference; why nothing can be said of
        executors, since already two passes of the reference differ.
    """
    why = {entry.executor.key: _other_work(entry, reference, scale) for entry in others}
    unequal = {key: words for key, words in why.items() if words}
    if unequal and (restless := _restless(reference, scale)):
        return {}, {}, restless
    mine = {entry.executor.key: entry.delivered.images for entry in others}
    theirs = reference.delivered.images
    comparable = {key: images for key, images in mine.items() if len(images) == len(theirs)}
    return {key: gap_of(images, theirs, scale) for key, images in comparable.items()}, unequal, ""


def _other_work(entry: _Entry, reference: _Entry, scale: Any) -> str:
    """Why the work of an executor is not that of the reference; "" if it is, as far as counts and first rows tell."""
    mine, theirs = entry.rounds[0].images, reference.rounds[0].images
    if mine != theirs:
        return f"{mine} images a pass, not {theirs}"
    return unlike(entry.delivered, reference.delivered, scale)


def _restless(reference: _Entry, scale: Any) -> str:
    """What is other in a second pass of the reference; "" if nothing."""
    counts = sorted({one.images for one in reference.rounds})
    if len(counts) > 1:
        return f"{counts[0]} to {counts[-1]} images a pass"
    return unlike(reference.contestant.first(reference.delivered.rows), reference.delivered, scale)


def _machine() -> dict[str, str]:
    from .. import __version__

    found = {
        "gpupipe": f"gpupipe {__version__}",
        "python": f"Python {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": f"{cpu_count()} CPUs",
    }
    gpus = cards()
    if gpus:
        card = gpus[min(first_visible(), len(gpus) - 1)]
        found["gpu"] = f"{card.name}, driver {card.driver}"
    else:
        found["gpu"] = "no GPU"
    return found


def _methods(alone: bool) -> dict[str, str]:
    where = "each executor in a process of its own" if alone else "all executors in turn in this process"
    peak = "" if alone else ", with all else that is in it: what the executor itself takes, own processes tell"
    cold = "in a fresh process" if alone else "in this process, where libraries may be loaded already"
    return {
        "rounds": f"{where}, in alternating order, after one pass each to warm up",
        "cpu_ms": "CPU time of the process, its threads, its worker processes and the children it has waited for, "
        "from the first batch to the last, divided by the images in between",
        "rate": "images between the first and the last batch of a pass, divided by the time between them; of a pass "
        "of one batch, or of one group of 32 images that are not batched, all of it",
        "first_batch_s": f"from making an iterator to its first batch, in the first pass, {cold}",
        "host_bytes": f"the kernel's record of the process's largest resident memory (VmHWM) in a pass{peak}",
        "gpu_bytes": "NVML, every 0.05 s: memory in use by all processes, above that at the start of a pass",
        "gpu_load": "NVML, every 0.05 s: mean utilisation in a pass; the share of time in which something ran",
        "jpeg_load": "NVML, every 0.05 s: mean utilisation of the JPEG engines in a pass",
        "waiting": "measured: a consumer sleeps as long as its work on a batch takes, and the time that it waits for "
        "the next one is counted, from the second batch on, for ten seconds at most or two batches",
        "bottleneck": "Dataset.profile over one second, after the first batch",
        "steps": "each op runs alone on each executor, on the images that the reference has at its input and with the "
        "same random numbers; tolerances are those of the op's conformance cases",
        "pays": "cores are CPU-ms an image times images/s; the GPU's share is that rate over the rate measured here",
    }
