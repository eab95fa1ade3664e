"""on_ray: the CPU-time of all processes for an image whose batches two Ray workers make, beside a loop without workers.

Each run is a program of its own, in alternating pairs: some epochs over drawn photographs, 224 x 224 crops in uint8,
batches of 64; the start of Ray and of the workers counts. CPU-time is that of the program and of all processes it
started, read from /proc while they live. In one more run workers are killed meanwhile: the batches are the same, and
the longest wait for one is shown. Ray's servers listen on all interfaces of the machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import data, report
from benchmarks.equal import UnequalWork
from benchmarks.pairs import ContestantFailed
from gpupipe.comparison.ratios import pair_order

__all__ = ["GOAL", "GOAL_OF_TRAINER", "GOAL_OF_WAITS", "add_options"]

IMAGE = "image/encoded"
MARK = "GPUPIPE_BENCHMARK_OF_RAY"
"""The variable in the environment of all processes of a run."""

GOAL, GOAL_OF_TRAINER = 1.35, 0.1
"""Most CPU-time beside the loop's; most CPU-ms of the trainer for an image, behind the start."""

GOAL_OF_WAITS = 30.0
"""Most seconds for a batch while workers are killed, one every seven batches."""

_ROOT = Path(__file__).parents[2]
_LIMIT = 600
"""Seconds that a run may take."""


def add_options(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("on-ray", help="CPU-time of two Ray workers beside a loop without workers")
    parser.set_defaults(run=_run)
    parser.add_argument("--data", default="", help="a glob of TFRecord shards; default: procedural photographs")
    parser.add_argument("--batches", type=int, default=24, help="of an epoch, 64 images each (%(default)s)")
    parser.add_argument("--epochs", type=int, default=4, help="(%(default)s)")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each (%(default)s)")
    parser.add_argument("--kills", type=int, default=6, help="of workers, in a run of its own; 0: none (%(default)s)")


def _run(options: argparse.Namespace, folder: Path) -> int:
    how = (data.load(options.data, folder).files, options.batches, options.epochs, options.kills)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ("loop", "on_ray")}
    for number in range(options.pairs):
        for which in pair_order(number):
            name = tuple(found)[which]
            found[name].append(_measure(name, *how))
    killed = [_measure("killed", *how)] if options.kills else []
    if len({run.pop("digest") for runs in (*found.values(), killed) for run in runs}) != 1:
        raise UnequalWork("the workers gave other batches than the loop, or another order")
    if killed and killed[0]["killed"] < options.kills:
        raise UnequalWork(f"--kills needs more batches than that, got {killed[0]['killed']} of {options.kills} kills")
    cpu = {name: statistics.median(run["cpu_ms"] for run in runs) for name, runs in found.items()}
    trainer = statistics.median(run["trainer_ms"] for run in found["on_ray"])
    ratio = cpu["on_ray"] / cpu["loop"]
    print(f"CPU-ms an image: loop {cpu['loop']:.2f}, on_ray {cpu['on_ray']:.2f}: {ratio:.2f} times (goal {GOAL})")
    print(f"of the trainer alone: {trainer:.3f} (goal {GOAL_OF_TRAINER})")
    for run in killed:
        print(f"longest wait while {run['killed']} workers are killed: {run['wait_s']:.1f} s (goal {GOAL_OF_WAITS:g})")
    settings = {"batches": options.batches, "epochs": options.epochs, "pairs": options.pairs, "workers": 2}
    document = report.header("on-ray", settings)
    document["goals"] = {"ratio": GOAL, "trainer_ms": GOAL_OF_TRAINER, "wait_s": GOAL_OF_WAITS}
    document |= {"runs": {**found, "killed": killed}, "cpu_ms": cpu, "ratio": ratio, "trainer_ms": trainer}
    print(f"written to {report.write(document, options.out).name}")
    return 0


def _measure(name: str, files: Sequence[str], batches: int, epochs: int, kills: int) -> dict[str, Any]:
    """Run one program to its end."""
    with tempfile.TemporaryDirectory(prefix="gp-ray-") as own:
        env = {**os.environ, "HOME": own, "RAY_USAGE_STATS_ENABLED": "0", MARK: own}
        sizes = [str(number) for number in (batches, epochs, kills if name == "killed" else 0)]
        command = [sys.executable, "-m", "benchmarks.suites.on_ray", name, *sizes, *files]
        try:
            done = subprocess.run(command, cwd=_ROOT, env=env, capture_output=True, text=True, timeout=_LIMIT)
        except subprocess.TimeoutExpired as error:
            raise ContestantFailed(name, "no end", f"{name} did not end within {_LIMIT} s") from error
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        raise ContestantFailed(name, why, f"{name} failed: {why}")
    # Ray prints there as well, also while it shuts down.
    one: dict[str, Any] = json.loads(next(x for x in reversed(done.stdout.splitlines()) if x.startswith('{"cpu_ms"')))
    took = f"{one['wait_s']:.1f} s" if name == "killed" else f"{one['cpu_ms']:.2f} CPU-ms an image"
    print(f"{name} {took}", file=sys.stderr, flush=True)
    return one


def example(record: Any) -> Any:
    """A random crop, uint8[224, 224, 3]."""
    import gpupipe as gp

    image = gp.io.parse_single_example(record, {IMAGE: gp.io.FixedLenFeature((), bytes)})[IMAGE]
    return gp.ops.random_resized_crop(gp.ops.decode_jpeg(image, channels=3), (224, 224))


def cpu_seconds(mark: str) -> float:
    """CPU-time of all living processes with a mark in their environment, and of their children that have ended."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                total += sum(map(int, (folder / "stat").read_text().rpartition(")")[2].split()[11:15]))
        except OSError:
            continue
    return total / os.sysconf("SC_CLK_TCK")


def kill_worker(mark: str, killed: set[int]) -> None:
    """End a process in which a worker is, by SIGKILL, if there is one that was not killed yet."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            own = f"{MARK}={mark}".encode() in (folder / "environ").read_bytes()
            if own and b"ray::Maker" in (folder / "cmdline").read_bytes() and int(folder.name) not in killed:
                os.kill(int(folder.name), signal.SIGKILL)
                killed.add(int(folder.name))
                return
        except OSError:
            continue


def main(name: str, batches: int, epochs: int, kills: int, files: Sequence[str]) -> None:
    """Run the loop; print what it took as JSON."""
    import gpupipe as gp

    mark = os.environ[MARK]
    records = gp.Dataset.list_files(list(files), shuffle=False).interleave(gp.TFRecordDataset, cycle_length=8)
    ds = records.repeat(64).shuffle(gp.ALL, seed=1).take(64 * batches).map(example).batch(64).prefetch(1)
    ds = ds.with_options(gp.Options(device="cpu"))
    if name != "loop":
        import ray

        ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", _temp_dir=mark, log_to_driver=False)
        ds = ds.on_ray(2)
    digest, images, start, wait, killed = hashlib.blake2b(digest_size=8), 0, 0.0, 0.0, set[int]()
    asked = time.monotonic()
    for number, batch in enumerate(ds.epochs(epochs)):
        wait = max(wait, time.monotonic() - asked)
        start = start or time.process_time()  # behind the imports and the start
        digest.update(batch[0, :2].tobytes())
        images += len(batch)
        if len(killed) < kills and number >= 3 + 7 * len(killed):
            kill_worker(mark, killed)
        asked = time.monotonic()
    trainer = (time.process_time() - start) * 1e3 / images
    found: dict[str, Any] = {"cpu_ms": cpu_seconds(mark) * 1e3 / images, "trainer_ms": trainer, "wait_s": wait}
    print(json.dumps({**found, "killed": len(killed), "digest": digest.hexdigest()}), flush=True)
    if name != "loop":
        ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
