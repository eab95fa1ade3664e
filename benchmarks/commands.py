"""commands: what `gpupipe pack` and `gpupipe verify` cost, in CPU time of the process and its children.

`pack --resize-shorter 256 --quality 90` is compared with the bare calls that it cannot do without: read, decode at the
least eighths that are large enough, resize, encode, checksum, write. Each run is a process of its own; imports and what
is written for the measurement do not count.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from benchmarks import report, tied
from benchmarks.checkout import place
from benchmarks.command_runs import QUALITY, RUNS, SEED, SHORTER
from benchmarks.job import Job
from benchmarks.no_worse import cpu_us, no_worse
from benchmarks.pairs import ContestantFailed
from gpupipe.comparison.ratios import Spread, pair_order, ratios

__all__ = ["GOALS", "commands"]

PAYLOAD = 100
DISTINCT = 400
"""Photographs that are drawn; the others are copies, since drawing one takes longer than all that is measured."""
TIMEOUT = 1200
GOALS: Mapping[str, float] = {"pack over bare calls": 1.1, "verify, us a record": 5.0}


def commands(
    out: Path,
    folder: Path,
    *,
    images: int = 2000,
    records: int = 1_000_000,
    pairs: int = 9,
    checkout: Path | None = None,
) -> Path:
    """Measure both, print a table, and write the result file.

    Args:
        out: folder of the result file.
        folder: for temporary files.
        images: photographs to pack.
        records: of `PAYLOAD` bytes to verify, in four files.
        pairs: of `pack` and the bare calls; as many runs of `verify` with one worker and with two.
        checkout: another one of gpupipe, whose commands are compared instead (`benchmarks.no_worse`).

    Raises:
        ContestantFailed: one did not end well.
    """
    source, shards = folder / "images", folder / "records"
    source.mkdir()
    shards.mkdir()
    draw(source, images)
    write(shards, records)
    settings = {"images": images, "distinct": min(images, DISTINCT), "records": records, "payload": PAYLOAD}
    settings |= {"pairs": pairs, "shorter": SHORTER, "quality": QUALITY}
    if checkout is not None:
        each = {"pack": (source, images), "verify": (shards, records), "verify with 2 workers": (shards, records)}
        return no_worse(
            "commands",
            {name: Job(name, (str(read),), elements=count) for name, (read, count) in each.items()},
            checkout,
            out,
            pairs=pairs,
            settings=settings,
            figures={"CPU-us/image, record": cpu_us},
            measure=lambda job: {
                "items": job.elements,
                "cpu_seconds": _alone(job.contestant, Path(job.files[0]), folder / "packed", job.checkout),
            },
        )
    runs: dict[str, list[float]] = {name: [] for name in RUNS}
    for number in range(pairs):
        for name in [("pack", "bare"), ("bare", "pack")][pair_order(number)[0]]:
            runs[name].append(_alone(name, source, folder / "packed"))
        runs["pack again"].append(_alone("pack again", source, folder / "packed"))
        for name in ("verify", "verify with 2 workers"):
            runs[name].append(_alone(name, shards, folder / "packed"))
    summary = {
        "pack over bare calls": ratios(runs["pack"], runs["bare"]),
        "pack over itself": ratios(runs["pack"], runs["pack again"]),
        "pack, ms an image": _each(runs["pack"], images, 1e3),
        "verify, us a record": _each(runs["verify"], records, 1e6),
        "verify with 2 workers, us a record": _each(runs["verify with 2 workers"], records, 1e6),
    }
    print("\n".join(f"{name:<38}{value}{_goal(name)}" for name, value in summary.items()))
    document = {
        **report.header("commands", settings),
        "goals": dict(GOALS),
        "summary": {name: asdict(value) for name, value in summary.items()},
        "cpu_seconds": runs,
    }
    return report.write(document, out)


def _each(seconds: list[float], count: int, unit: float) -> Spread:
    return Spread.of([one / count * unit for one in seconds])


def _goal(name: str) -> str:
    return f"   (goal: at most {GOALS[name]:g})" if name in GOALS else ""


def draw(folder: Path, images: int) -> None:
    """Write photographs as files, which are links where a photograph comes again."""
    from gpupipe.comparison.photographs import encode, take

    for number in range(images):
        path, first = folder / f"{number:05}.jpg", folder / f"{number % DISTINCT:05}.jpg"
        if number < DISTINCT:
            shot, pixels = take(number)
            path.write_bytes(encode(pixels, shot.quality))
        else:
            os.link(first, path)


def write(folder: Path, records: int) -> None:
    """Write records of random bytes to four files."""
    import numpy as np

    from gpupipe.io import TFRecordWriter

    random = np.random.default_rng(SEED)
    for number in range(4):
        with TFRecordWriter(folder / f"{number}.tfrecord") as file:
            for _ in range(records // 4):
                file.write(random.bytes(PAYLOAD))


def _alone(name: str, source: Path, out: Path, checkout: str = "") -> float:
    """CPU seconds of a run in a process of its own, after its imports."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    with place(checkout) as (folder, variables):
        done = subprocess.run(
            tied.command("benchmarks.command_runs", name, str(source), str(out), checkout),
            capture_output=True, text=True, timeout=TIMEOUT, cwd=folder, env=variables,
        )  # fmt: skip
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise ContestantFailed(
            name, f"ended with {done.returncode}: {last[:300]}", f"{name} failed:\n{done.stderr[-3000:]}"
        )
    return float(json.loads(done.stdout.splitlines()[-1]))
