"""gil: what more threads than this machine has cores would give: calls that release Python's lock sleep instead.

The README's chain runs with records from memory on one thread. Its calls of libraries that compute without the GIL are
timed: decoding, resizing, mirroring, normalising. Then the same chain runs on 1 to 32 threads, and each such call
sleeps as long as it took, so that all threads compute at the same time, as on as many cores. All else is real: Python,
copies that hold the GIL, and threads that wait for it. DALI computes in threads of its own; what its pipeline by hand
takes on one thread, divided by the threads, is the most that it could give.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time, sleep, thread_time
from typing import Any
from unittest.mock import patch
from zlib import adler32

import numpy as np

from benchmarks import data, report, tied
from benchmarks.contestants import CONTESTANTS, missing
from benchmarks.equal import UnequalWork
from benchmarks.job import Job
from benchmarks.pairs import ContestantFailed
from benchmarks.pairs import measure as measured_alone
from gpupipe.comparison.ratios import Spread

__all__ = ["CALLS", "THREADS", "add_options", "gil", "released", "simulated", "table"]

EXECUTORS = ("fast", "numpy")
THREADS = (1, 2, 4, 6, 8, 12, 16, 32)
CALLS: Mapping[str, tuple[str, ...]] = {
    "decode a window": ("gpupipe.extract.images.decode.decode_region",),
    "decode": ("gpupipe.extract.images.decode._turbo",),
    "resize": ("cykooz_resizer.Resizer", "PIL.Image.Image.resize"),
    "mirror": ("cv2.flip",),
    "normalise": ("gpupipe.ops.normalize.scaled",),
}
"""What computes without the GIL, by the step of the chain."""
_TIMED, _WINDOW = 8, 1024
"""Batches in which calls are timed; images of a simulated run for each thread, at most."""
_PR_SET_TIMERSLACK = 29


def add_options(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("gil", help="what more threads than cores would give, with calls that sleep instead")
    parser.set_defaults(run=_run)
    parser.add_argument("--data", default="", help="a glob of TFRecord shards; default: procedural photographs")
    numbers = ",".join(map(str, THREADS))
    parser.add_argument("--numbers", default=numbers, help="of threads, separated by commas (%(default)s)")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each executor and number (%(default)s)")


def _run(options: argparse.Namespace, folder: Path) -> int:
    names = tuple(options.contestants.split(",")) if options.contestants else EXECUTORS
    numbers = [int(one) for one in options.numbers.split(",")]
    print(f"written to {gil(options.out, options.data, folder, names, numbers, options.pairs).name}")
    return 0


@dataclass
class Released:
    """The calls of one step that release the GIL, in a process: timed at first, then replaced by sleep.

    Attributes:
        sleeps: seconds of a call that sleeps; None while calls are timed.
        seconds, calls: of those that were timed.
    """

    sleeps: float | None = None
    seconds: float = 0.0
    calls: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def timed(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Do a call and note how long it took."""
        start = thread_time()
        result = call(*args, **named)
        taken = thread_time() - start
        with self._lock:
            self.seconds, self.calls = self.seconds + taken, self.calls + 1
        return result

    def slept(self, call: Callable[..., Any], known: Callable[[], Any], *args: Any, **named: Any) -> Any:
        """A call's result, or after its time what is known of it; what is not known is computed first."""
        if self.sleeps is None:
            return self.timed(call, *args, **named)
        result = known()
        sleep(self.sleeps)
        return result


@contextmanager
def released(steps: Mapping[str, Released]) -> Iterator[None]:
    """Patch the libraries of both executors, so that their calls go through `steps`."""
    import cv2
    import cykooz_resizer
    from PIL import Image

    from gpupipe.extract.images import decode as decoding

    normalize = import_module("gpupipe.ops.normalize")  # the package has a function of this name
    region, turbo, flip, scaled = decoding.decode_region, decoding._turbo(), cv2.flip, normalize.scaled
    real, whole = cykooz_resizer.Resizer, Image.Image.resize
    images: dict[tuple[int, int], Any] = {}  # decoded once each, as their sizes have to be known
    small: dict[Any, Any] = {}

    def decode_region(encoded: Any, window: tuple[int, int, int, int], gray: bool) -> Any:
        shape = (window[2], window[3], 1 if gray else 3)
        return steps["decode a window"].slept(region, lambda: np.empty(shape, np.uint8), encoded, window, gray)

    def decode_jpeg(encoded: Any, **how: Any) -> Any:
        def known() -> Any:
            key = len(encoded), adler32(encoded[-64:])
            if key not in images:
                images[key] = turbo(encoded, **how)
            return images[key]

        return steps["decode"].slept(turbo, known, encoded, **how)

    class Resizer:
        def __init__(self) -> None:
            self._real = real()

        def resize(self, *args: Any) -> None:
            steps["resize"].slept(self._real.resize, lambda: None, *args)

    def resize(image: Any, size: tuple[int, int], *args: Any) -> Any:
        def known() -> Any:
            if size not in small:
                small[size] = whole(image, size, *args)
            return small[size]

        return steps["resize"].slept(whole, known, image, size, *args)

    def mirrored(image: Any, code: int, dst: Any = None) -> Any:
        return steps["mirror"].slept(flip, lambda: image, image, code, dst)

    def normalised(x: Any, mean: Any, scale: Any, out: Any) -> Any:
        return steps["normalise"].slept(scaled, lambda: out, x, mean, scale, out)

    with ExitStack() as stack:
        for where, name, new in (
            (decoding, "decode_region", decode_region),
            (decoding, "_turbo", lambda: decode_jpeg),
            (cykooz_resizer, "Resizer", Resizer),
            (Image.Image, "resize", resize),
            (cv2, "flip", mirrored),
            (normalize, "scaled", normalised),
        ):
            stack.enter_context(patch.object(where, name, new))
        yield


def simulated(files: Sequence[str], executor: str, numbers: Sequence[int], batch: int = 64) -> dict[str, Any]:
    """Time the calls of an executor on one thread, then run it on each number of threads with calls that sleep.

    Returns:
        CPU-milliseconds an image, those in calls that release the GIL, by step, and images/s by number of threads.
    """
    from benchmarks.contestants.gpupipe_chain import batches

    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)  # nanoseconds by which a sleep of this thread's children is late
    steps = {name: Released() for name in CALLS}
    job = Job(f"gpupipe-{executor}", tuple(files), batch=batch, threads=1, shuffle=256)

    def window(threads: int, count: int, warmup: int) -> tuple[float, float, dict[str, tuple[float, int]]]:
        """Images per second; CPU-seconds; seconds and number of the calls of each step."""
        chain = batches(replace(job, threads=threads), "cpu", executor, memory=True)  # type: ignore[arg-type]
        with closing(chain):
            for _ in islice(chain, warmup):
                pass
            for step in steps.values():
                step.seconds, step.calls = 0.0, 0
            start, cpu = perf_counter(), process_time()
            for _ in islice(chain, count):
                pass
            found = {name: (step.seconds, step.calls) for name, step in steps.items()}
            return count * batch / (perf_counter() - start), process_time() - cpu, found

    with released(steps):
        _, cpu, calls = window(1, _TIMED, 2)
        images = calls["normalise"][1]  # one call for each; those that wait at the end were computed, too
        taken = {name: 1e3 * seconds / images for name, (seconds, count) in calls.items() if count}
        for name, (seconds, count) in calls.items():
            steps[name].sleeps = seconds / count if count else 0.0
        rates = {str(n): window(n, max(_WINDOW // batch * min(n, 8), 4), 10)[0] for n in numbers}
    return {"cpu_ms_per_item": 1e3 * cpu / images, "released_ms_per_item": taken, "items_per_s": rates}


def gil(out: Path, pattern: str, folder: Path, names: Sequence[str], numbers: Sequence[int], rounds: int) -> Path:
    """Simulate, print a table, and write the result file.

    Raises:
        UnequalWork: an unknown executor, a number that is none of threads, or a library is missing.
        ContestantFailed: a run did not end well.
    """
    if wrong := [name for name in names if name not in EXECUTORS] or [str(n) for n in numbers if n < 1]:
        raise UnequalWork(
            f"gil needs executors out of {', '.join(EXECUTORS)} and threads from 1 on, got {', '.join(wrong)}"
        )
    if why := missing(CONTESTANTS["gpupipe-fast"]):
        raise UnequalWork(f"gil needs the libraries of the extra `fast`, got {why}")
    shards = data.load(pattern, folder, 0.2)
    runs = [
        {"executor": name, **_alone(shards.files, name, numbers)}
        for number in range(rounds)
        for name in names[:: -1 if number % 2 else 1]
    ]
    found = summary(runs)
    dali = {} if missing(CONTESTANTS["dali"]) else {"rate": _dali(shards, rounds)}
    print(table(found, dali))
    settings = {**shards.describe(), "threads": list(numbers), "rounds": rounds, "batch": 64}
    document = {
        **report.header("gil", settings),
        "summary": report.plain(found),
        "dali_on_one_thread": {key: asdict(one) for key, one in dali.items()},
        "runs": runs,
    }
    return report.write(document, out)


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Medians of the runs of each executor."""
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(run["executor"] for run in runs):
        of = [run for run in runs if run["executor"] == name]
        held = [run["cpu_ms_per_item"] - sum(run["released_ms_per_item"].values()) for run in of]
        found[name] = {
            "cpu_ms_per_item": Spread.of([run["cpu_ms_per_item"] for run in of]),
            "held_ms_per_item": Spread.of(held),
            **{n: Spread.of([run["items_per_s"][n] for run in of]) for n in of[0]["items_per_s"]},
        }
    return found


def table(found: Mapping[str, Mapping[str, Any]], dali: Mapping[str, Spread]) -> str:
    """Images per second by threads, and as a share of as many times those of one thread."""
    numbers = [key for key in next(iter(found.values())) if key.isdigit()]
    lines = [f"{'images/s (share of linear)':<30}" + "".join(f"{f'{n} threads':>18}" for n in numbers)]
    for name, one in found.items():
        each = one[numbers[0]].median / int(numbers[0])
        cells = [f"{one[n].median:.0f} ({one[n].median / int(n) / each:.2f})" for n in numbers]
        lines.append(f"{f'gpupipe, {name}':<30}" + "".join(f"{cell:>18}" for cell in cells))
    for one in dali.values():
        cells = [f"{one.median * int(n):.0f} (1.00)" for n in numbers]
        lines.append(f"{'DALI by hand, at most':<30}" + "".join(f"{cell:>18}" for cell in cells))
    for name, one in found.items():
        lines.append(
            f"{name}: {one['cpu_ms_per_item'].median:.3f} CPU-ms an image on one thread, of which "
            f"{one['held_ms_per_item'].median:.3f} not in calls that release the GIL"
        )
    return "\n".join(lines)


def _dali(shards: data.Data, rounds: int) -> Spread:
    """Images per second of the pipeline by hand on one thread of DALI."""
    needed = (10 + 16) * 64 + 1000
    job = Job("dali", data.repeated(shards.files, shards.records, needed), threads=1, batches=16)
    return Spread.of([measured_alone(replace(job, seed=number)).rate for number in range(rounds)])


def _alone(files: Sequence[str], executor: str, numbers: Sequence[int]) -> dict[str, Any]:
    """`simulated` in a process of its own."""
    words = json.dumps({"files": list(files), "executor": executor, "numbers": list(numbers)})
    done = subprocess.run(
        tied.command(__name__, words), capture_output=True, text=True, timeout=60 + 30 * len(numbers),
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    if done.returncode:
        raise ContestantFailed(executor, f"ended with {done.returncode}", f"{executor} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    print(json.dumps(simulated(**json.loads(sys.argv[1]))))
