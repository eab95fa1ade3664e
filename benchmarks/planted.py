"""planted: chains with a bottleneck that is known, or with none: does `Dataset.profile` name it, and predict the gain?

Six kinds of bottlenecks and two balanced chains, each in three severities. A program is profiled; then what the verdict
suggests is done, and the rates of plain loops before and after it are compared with the predicted gain.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks import report

__all__ = ["PROGRAMS", "Outcome", "Program", "planted", "run_program"]

STEPS, WARMUP = 60, 6
RIGHT, CLOSE = 22, 0.25
"""The project's goals: programs of 24 whose bottleneck is named, and the median error of the predicted gains."""


@dataclass(frozen=True, slots=True)
class Program:
    """A chain with a planted bottleneck.

    Attributes:
        plant: which.
        severity: 1, 2 or 3.
        kind: of the verdict that is right.
        size: of the plant, in the units of `make`.
        make: builds the chain and the loop's work, from a folder of photographs, a size and what to change.
    """

    plant: str
    severity: int
    kind: str
    size: float
    make: Callable[[Path, float, str], tuple[Any, Callable[[Any], None]]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the profile of a program said, and what came true."""

    plant: str
    severity: int
    expected: str
    named: str
    mend: str
    predicted: float
    measured: float

    @property
    def right(self) -> bool:
        return self.expected == self.named

    @property
    def error(self) -> float:
        """The error of the predicted gain, relative to the measured one."""
        return abs(self.predicted - self.measured) / self.measured


def nap(seconds: float) -> Callable[[Any], None]:
    """The loop's work: it takes some time, and no CPU."""
    return lambda element: time.sleep(seconds)


@contextlib.contextmanager
def slow_storage(seconds: float) -> Iterator[None]:
    """Every read of a local file takes so much longer."""
    from gpupipe.extract.storage import files

    real = files._pread_into

    def slow(fd: int, out: memoryview, offset: int) -> int:
        time.sleep(seconds)
        return real(fd, out, offset)

    files._pread_into = slow
    try:
        yield
    finally:
        files._pread_into = real


class _SlowStorage:
    """A chain that is read from a slow storage, whoever iterates over it."""

    def __init__(self, dataset: Any, seconds: float) -> None:
        self._dataset, self._seconds = dataset, seconds

    def profile(self, *args: Any, **options: Any) -> Any:
        with slow_storage(self._seconds):
            return self._dataset.profile(*args, **options)

    def iterator(self, epoch: int) -> Iterator[Any]:
        with slow_storage(self._seconds), self._dataset.iterator(epoch) as items:
            yield from items


def _records(folder: Path) -> Any:
    import gpupipe as gp

    files = gp.Dataset.list_files(str(folder / "photos-*"), seed=1).repeat()
    return files.interleave(gp.TFRecordDataset, cycle_length=4).shuffle(50, seed=1)


def _label(record: Any) -> Any:
    import gpupipe as gp

    return gp.io.parse_single_example(record, {"image/class/label": gp.io.FixedLenFeature((), "int64")})


def storage(folder: Path, size: float, change: str) -> tuple[Any, Callable[[Any], None]]:
    chain = _records(folder).map(_label).batch(16).prefetch(2)
    return _SlowStorage(chain, size / 2 if change else size), nap(0.004)


def parse(folder: Path, size: float, change: str) -> tuple[Any, Callable[[Any], None]]:
    import gpupipe as gp

    names = [f"f{i}" for i in range(int(size / 2 if change else size))]

    def features(record: Any) -> Any:
        return gp.io.parse_single_example(record, {name: gp.io.FixedLenFeature((), "int64") for name in names})

    record = gp.io.encode_example({f"f{i}": i for i in range(int(size))})
    chain = gp.Dataset.from_tensor_slices([record] * 64).repeat().map(features).batch(16).prefetch(2)
    return chain, nap(0.001)


def decode(folder: Path, size: float, change: str) -> tuple[Any, Callable[[Any], None]]:
    import gpupipe as gp
    from gpupipe import ops

    def image(record: Any) -> Any:
        x = gp.io.parse_single_example(record, {"image/encoded": gp.io.FixedLenFeature((), bytes)})
        return ops.resize(ops.decode_jpeg(x["image/encoded"], channels=3), (64, 64))

    chain = _records(folder).map(image).batch(8).prefetch(2)
    return chain.with_options(gp.Options(device="cpu", backend="numpy", threads=2 if change else 1)), nap(size)


def python(folder: Path, size: float, change: str) -> tuple[Any, Callable[[Any], None]]:
    import gpupipe as gp

    return _called(gp.Dataset.counter(), _slow(size), change), nap(0.003)


def computing(folder: Path, size: float, change: str) -> tuple[Any, Callable[[Any], None]]:
    """A function that holds the interpreter's lock: threads do not help."""
    import gpupipe as gp

    return _called(gp.Dataset.counter(), partial(_spin, size), change), nap(0.003)


def _called(chain: Any, function: Callable[[Any], Any], change: str) -> Any:
    """A map of a function, with the workers that a verdict suggests."""
    how: dict[str, Any] = {"num_parallel_calls": 2} if change else {}
    if "process" in change:
        how["workers"] = "process"
    return chain.map(function, **how).batch(4).prefetch(2)


def _spin(seconds: float, x: Any) -> Any:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
    return x


def _slow(seconds: float) -> Callable[[Any], Any]:
    def slow(x: Any) -> Any:
        time.sleep(seconds)
        return x

    return slow


def loop(folder: Path, size: float, change: str) -> tuple[Any, Callable[[Any], None]]:
    import gpupipe as gp

    chain = gp.Dataset.counter().map(_slow(0.001)).batch(4).prefetch(2)
    return chain, nap(size / 2 if change else size)


def turns(folder: Path, size: float, change: str) -> tuple[Any, Callable[[Any], None]]:
    """No queue before the loop: the chain and the loop take turns."""
    import gpupipe as gp

    chain = gp.Dataset.counter().map(_slow(size)).batch(2)
    return _prefetched(chain, change), nap(2 * size)


def bursts(folder: Path, size: float, change: str) -> tuple[Any, Callable[[Any], None]]:
    """A queue that is too short for elements of very different costs."""
    import gpupipe as gp

    def slow(x: Any) -> Any:
        time.sleep(8 * size if int(x) % 8 == 0 else size / 8)
        return x

    chain = gp.Dataset.counter().map(slow)
    return _prefetched(chain, change or "prefetch(1)"), nap(size)


def _prefetched(chain: Any, change: str) -> Any:
    """The chain with the queue that a verdict suggests, such as ``prefetch(8) instead of 1 waiting``."""
    if not change:
        return chain
    return chain.prefetch(int(change.partition("(")[2].partition(")")[0]))


def balanced(folder: Path, size: float, change: str) -> tuple[Any, Callable[[Any], None]]:
    """A function and the loop take the same time."""
    import gpupipe as gp

    chain = gp.Dataset.counter().map(_slow(size / 2 if change else size)).prefetch(2)
    return chain, nap(size)


def balanced_stages(folder: Path, size: float, change: str) -> tuple[Any, Callable[[Any], None]]:
    """Three threads take the same time: storage and parsing, a function, the loop."""
    import gpupipe as gp

    first = gp.Dataset.counter().map(_slow(size / 2 if change else size)).prefetch(2)
    return first.map(_slow(size)).prefetch(2), nap(size)


_PLANTS: tuple[tuple[str, str, Any, tuple[float, float, float]], ...] = (
    ("slow storage", "storage", storage, (0.0005, 0.0015, 0.004)),
    ("slow parse", "parse", parse, (150, 300, 600)),
    ("slow decode", "decode", decode, (0.008, 0.004, 0.001)),
    ("slow Python map", "python", python, (0.0015, 0.01, 0.004)),
    ("slow consumer", "loop", loop, (0.012, 0.02, 0.04)),
    ("starved prefetch", "queue", turns, (0.003, 0.008, 0.006)),
    ("balanced", "balanced", balanced, (0.004, 0.008, 0.016)),
    ("balanced stages", "balanced", balanced_stages, (0.004, 0.008, 0.016)),
)

_OTHERS = {("starved prefetch", 3): bursts, ("slow Python map", 3): computing}
"""Programs of a plant that are made in another way."""

PROGRAMS = tuple(
    Program(plant, severity, kind, size, _OTHERS.get((plant, severity), make))
    for plant, kind, make, sizes in _PLANTS
    for severity, size in enumerate(sizes, 1)
)
"""The 24 programs."""


def rate(dataset: Any, consumer: Callable[[Any], None], steps: int) -> float:
    """Steps per second of a plain loop, after a warm-up."""
    items = iter(dataset.iterator(0))
    for element in islice(items, WARMUP):
        consumer(element)
    started = time.perf_counter()
    for element in islice(items, steps):
        consumer(element)
    took = time.perf_counter() - started
    items.close()
    return steps / took


def run_program(program: Program, folder: Path, pairs: int, steps: int = STEPS) -> Outcome:
    """Profile a program, do what the verdict suggests, and compare."""
    dataset, consumer = program.make(folder, program.size, "")
    profile = dataset.profile(steps, warmup=WARMUP, consumer=consumer)
    verdict = profile.verdict
    mend = verdict.mend
    change = "half the first function" if mend is None else mend.change
    predicted = mend.gain if mend is not None else _of_first(verdict)
    ratios = []
    for _ in range(pairs):
        before = rate(*program.make(folder, program.size, ""), steps)
        ratios.append(rate(*program.make(folder, program.size, change), steps) / before)
    measured = statistics.median(ratios)
    return Outcome(program.plant, program.severity, program.kind, verdict.kind, change, predicted, measured)


def _of_first(verdict: Any) -> float:
    """The predicted gain of the first Python function in half its time; 1 where it is not worth a line."""
    return next((one.gain for one in reversed(verdict.others) if one.kind == "python"), 1.0)


def planted(out: Path, folder: Path, *, plants: tuple[str, ...] = (), pairs: int = 3) -> Path:
    """Run all programs, print a table, and write the result file."""
    from gpupipe.comparison.photographs import write_shards

    write_shards(folder, 80, 4)
    outcomes = []
    for program in PROGRAMS:
        if plants and program.plant not in plants:
            continue
        outcome = run_program(program, folder, pairs)
        outcomes.append(outcome)
        print(line(outcome), file=sys.stderr, flush=True)
    print(table(outcomes))
    document = {
        **report.header("profile", {"steps": STEPS, "warmup": WARMUP, "pairs": pairs, "plants": list(plants)}),
        "right": sum(one.right for one in outcomes),
        "programs": len(outcomes),
        "median_error": statistics.median(one.error for one in outcomes),
        "goals": {"right": RIGHT, "median_error": CLOSE},
        "outcomes": [{**asdict(one), "right": one.right, "error": one.error} for one in outcomes],
    }
    return report.write(document, out)


def line(one: Outcome) -> str:
    """One program as a line."""
    mark = "right" if one.right else "WRONG"
    return (
        f"{one.plant:<18}{one.severity}  {mark}  {one.named:<9} predicted {one.predicted:5.2f}  measured "
        f"{one.measured:5.2f}  off {one.error:4.0%}  {one.mend[:60]}"
    )


def table(outcomes: list[Outcome]) -> str:
    """All programs, and the goals."""
    right, error = sum(one.right for one in outcomes), statistics.median(one.error for one in outcomes)
    return "\n".join([
        *map(line, outcomes),
        f"named {right} of {len(outcomes)} (goal: {RIGHT} of {len(PROGRAMS)}); median error of the predicted gain "
        f"{error:.0%} (goal: {CLOSE:.0%})",
    ])  # fmt: skip
