"""gil: what more threads than this machine has cores would give: calls that release Python's lock sleep instead.

The README's chain runs with records from memory. Its calls of libraries that compute without the GIL are timed on one
thread: decoding, resizing, mirroring, normalising. Then the same chain runs on 1 to 32 threads, and each such call
sleeps as long as it took, so that all threads compute at the same time, as on as many cores. All else is real: Python,
copies that hold the GIL, and threads that wait for it. The rates that this machine really has, on one thread and on all
cores, are printed beside those: they say how far the simulation can be trusted. DALI computes in threads of its own;
what its pipeline by hand gives on one thread, times the threads, is the most that it could give.
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
from benchmarks.machine import cores
from benchmarks.pairs import ContestantFailed
from benchmarks.pairs import measure as measured_alone
from gpupipe.comparison.ratios import Spread
from gpupipe.extract.images.region import region_decoder

__all__ = ["STEPS", "THREADS", "add_options", "gil", "released", "simulated", "table"]

EXECUTORS = ("fast", "fast-alone", "numpy")
"""Alone: without nvImageCodec, which DALI brings along."""
THREADS = (1, 2, 4, 6, 8, 12, 16, 32)
STEPS = ("decode a window", "decode", "resize", "mirror", "normalise")
"""What computes without the GIL."""
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

    def begin(self) -> None:
        """Forget the calls so far."""
        with self._lock:
            self.seconds, self.calls = 0.0, 0

    def call(self, real: Callable[..., Any], known: Callable[[], Any], *args: Any, **named: Any) -> Any:
        """Do a call and note how long it took, whether it fails or not; or sleep, and give what is known of it."""
        if self.sleeps is not None:
            result = known()
            sleep(self.sleeps)
            return result
        start = thread_time()
        try:
            return real(*args, **named)
        finally:
            taken = thread_time() - start
            with self._lock:
                self.seconds, self.calls = self.seconds + taken, self.calls + 1


@contextmanager
def released(steps: Mapping[str, Released], alone: bool = False) -> Iterator[None]:  # noqa: C901 : seven functions in one
    """Patch the libraries of all executors, so that their calls go through `steps`; `alone`: without nvImageCodec."""
    import cv2
    import cykooz_resizer
    from PIL import Image

    from gpupipe.extract.images import decode as decoding
    from gpupipe.extract.images import region

    normalize = import_module("gpupipe.ops.normalize")  # the package has a function of this name
    turbo, flip, scaled, decode_region = decoding._turbo(), cv2.flip, normalize.scaled, region.decode_region
    real, whole = cykooz_resizer.Resizer, Image.Image.resize
    assert turbo is not None
    images: dict[tuple[int, int], Any] = {}  # decoded once each, as their sizes have to be known
    small: dict[Any, Any] = {}
    here = threading.local()

    class Own(region._Own):
        """A thread's decoder of windows."""

        def __init__(self) -> None:
            super().__init__()
            decode = self.decode

            def known() -> Any:
                return np.empty(here.shape, np.uint8)

            self.decode = lambda stream, params: steps["decode a window"].call(decode, known, stream, params=params)

    def noted(encoded: Any, window: tuple[int, int, int, int], gray: bool) -> Any:
        here.shape = (window[2], window[3], 1 if gray else 3)
        return decode_region(encoded, window, gray)

    def decode_jpeg(encoded: Any, **how: Any) -> Any:
        def known() -> Any:
            if "buffer" in how:  # the upper rows of an image, after which it goes on: see `_upper_rows`
                raise ValueError("extraneous bytes before marker 0xd9")
            key = len(encoded), adler32(encoded[-64:])
            if key not in images:
                images[key] = turbo(encoded, **how)
            return images[key]

        try:
            return steps["decode"].call(turbo, known, encoded, **how)
        except ValueError:
            if "buffer" in how and (seconds := steps["decode"].sleeps):
                sleep(seconds)
            raise

    class Resizer:
        """A thread's resizer."""

        def __init__(self) -> None:
            self._real = real()

        def resize(self, *args: Any) -> None:
            steps["resize"].call(self._real.resize, lambda: None, *args)

    def resize(image: Any, size: tuple[int, int], *args: Any) -> Any:
        def known() -> Any:
            if size not in small:
                small[size] = whole(image, size, *args)
            return small[size]

        return steps["resize"].call(whole, known, image, size, *args)

    def mirrored(image: Any, code: int, dst: Any = None) -> Any:
        return steps["mirror"].call(flip, lambda: image, image, code, dst)

    def normalised(x: Any, mean: Any, scale: Any, out: Any) -> Any:
        return steps["normalise"].call(scaled, lambda: out, x, mean, scale, out)

    with ExitStack() as stack:
        for where, name, new in (
            (region, "_Own", Own),
            (decoding, "decode_region", noted),
            (decoding, "_turbo", lambda: decode_jpeg),
            (cykooz_resizer, "Resizer", Resizer),
            (Image.Image, "resize", resize),
            (cv2, "flip", mirrored),
            (normalize, "scaled", normalised),
            *([(region, "region_decoder", lambda: None)] * alone),
        ):
            stack.enter_context(patch.object(where, name, new))
        for kept in (region._own, import_module("gpupipe.ops._shared.libraries")._own):  # made with the real ones
            kept.cache_clear()
            stack.callback(kept.cache_clear)
        yield


def simulated(files: Sequence[str], executor: str, numbers: Sequence[int], batch: int = 64) -> dict[str, Any]:
    """Time the calls of an executor on one thread, then run it on each number of threads with calls that sleep.

    Returns:
        CPU-milliseconds an image, those in calls that release the GIL, by step, and images/s by number of threads:
        simulated ones, and those of this machine on one thread and on all cores.
    """
    from benchmarks.contestants.gpupipe_chain import batches

    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)  # nanoseconds by which a sleep of this thread's children is late
    steps = {name: Released() for name in STEPS}
    job = Job(f"gpupipe-{executor}", tuple(files), batch=batch, threads=1, shuffle=256)
    backend: Any = executor.partition("-")[0]

    def window(threads: int, count: int, warmup: int) -> tuple[float, float, dict[str, tuple[float, int]]]:
        """Images per second; CPU-seconds; seconds and number of the calls of each step."""
        chain = batches(replace(job, threads=threads), "cpu", backend, memory=True)
        with closing(chain):
            for _ in islice(chain, warmup):
                pass
            for step in steps.values():
                step.begin()
            start, cpu = perf_counter(), process_time()
            for _ in islice(chain, count):
                pass
            found = {name: (step.seconds, step.calls) for name, step in steps.items()}
            return count * batch / (perf_counter() - start), process_time() - cpu, found

    with released(steps, executor == "fast-alone"):
        rate, cpu, calls = window(1, _TIMED, 4)
        real = {"1": rate}
        if cores() > 1:
            real[str(cores())] = window(cores(), _TIMED * cores(), 4)[0]
        images = calls["normalise"][1]  # one call for each; those that wait at the end were computed, too
        taken = {name: 1e3 * seconds / images for name, (seconds, count) in calls.items() if count}
        for name, (seconds, count) in calls.items():
            steps[name].sleeps = seconds / count if count else 0.0
        rates = {str(n): window(n, max(_WINDOW // batch * min(n, 8), 4), 10)[0] for n in numbers}
    return {
        "cpu_ms_per_item": 1e3 * cpu / images,
        "released_ms_per_item": taken,
        "real_items_per_s": real,
        "items_per_s": rates,
    }


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
    if "fast" in names and region_decoder() is None:
        raise UnequalWork("gil needs nvImageCodec for fast, got none; use --contestants fast-alone,numpy")
    numbers = sorted({1, *numbers})
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
        "summary": {
            name: {
                key: asdict(value) if isinstance(value, Spread) else {n: asdict(one) for n, one in value.items()}
                for key, value in each.items()
            }
            for name, each in found.items()
        },
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
            "real": {n: Spread.of([run["real_items_per_s"][n] for run in of]) for n in of[0]["real_items_per_s"]},
            **{n: Spread.of([run["items_per_s"][n] for run in of]) for n in of[0]["items_per_s"]},
        }
    return found


def table(found: Mapping[str, Mapping[str, Any]], dali: Mapping[str, Spread]) -> str:
    """Images per second by threads, and as a share of as many times those of one thread."""
    numbers = [key for key in next(iter(found.values())) if key.isdigit()]  # 1 is the first
    lines = [f"{'images/s (share of linear)':<30}" + "".join(f"{f'{n} threads':>18}" for n in numbers)]
    for name, one in found.items():
        each = one["1"].median
        cells = [f"{one[n].median:.0f} ({one[n].median / int(n) / each:.2f})" for n in numbers]
        lines.append(f"{f'gpupipe, {name}':<30}" + "".join(f"{cell:>18}" for cell in cells))
    for rate in dali.values():
        cells = [f"{rate.median * int(n):.0f} (1.00)" for n in numbers]
        lines.append(f"{'DALI by hand, at most':<30}" + "".join(f"{cell:>18}" for cell in cells))
    for name, one in found.items():
        lines.append(
            f"{name}: {one['cpu_ms_per_item'].median:.3f} CPU-ms an image on one thread, of which "
            f"{one['held_ms_per_item'].median:.3f} not in calls that release the GIL; images/s of this machine: "
            + ", ".join(f"{spread.median:.0f} on {n}" for n, spread in sorted(one["real"].items()))
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
    limit = 60 + 30 * len(numbers)
    try:
        done = subprocess.run(
            tied.command(__name__, words), capture_output=True, text=True, timeout=limit, cwd=Path(__file__).parents[2]
        )
    except subprocess.TimeoutExpired as error:
        raise ContestantFailed(executor, f"no end within {limit} s", f"{executor} needs more than {limit} s") from error
    if done.returncode:
        raise ContestantFailed(executor, f"ended with {done.returncode}", f"{executor} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    print(json.dumps(simulated(**json.loads(sys.argv[1]))))
