"""ranks: how long ranks that differ take from the start of their loop to the error that each of them raises.

Four processes on this machine, joined by torch.distributed (gloo) over a store as torchrun has it, bound to 127.0.0.1.
One of them has another seed, epoch, list of files, file size, batch or function. The clock of a rank starts once all of
them are there, at `iter`, and stops at the error; imports are done before, or count with `--cold`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from benchmarks import report, tied
from benchmarks.equal import UnequalWork
from benchmarks.pairs import ContestantFailed
from benchmarks.process import ending, environment
from benchmarks.suites.rank_start import BATCH, FOLDERS, WRONG
from gpupipe.comparison.ratios import Spread

__all__ = ["GOAL", "KINDS", "add_options", "ranks"]

GOAL = 1.0
"""Most seconds of any rank, whatever differs."""

KINDS: Mapping[str, str] = {
    "nothing": "",
    "seed": "another seed: 2, where",
    "epoch": "another epoch: 3, where",
    "files": "other files: 15, where",
    "file size": "files of other sizes: ",
    "batch": f"another batch: {2 * BATCH}, where",
    "function": "another step 4: map(chain.<locals>.crop()) [traced], where",
}
"""In what a rank differs, and what every rank says then; where nothing does, the time is that to the first batch."""

FILES, IMAGES = 16, 32
_ROOT = Path(__file__).parents[2]
_LIMIT = 180
"""Seconds that the ranks of a run may take, with their imports."""


def add_options(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("ranks", help="seconds until ranks that differ raise, each of them")
    parser.set_defaults(run=_run)
    parser.add_argument("--kinds", default="", help=f"out of {', '.join(KINDS)}; default: all")
    parser.add_argument("--ranks", type=int, default=4, help="processes, 2, 4, 8 or 16 (%(default)s)")
    parser.add_argument("--cold", action="store_true", help="count what a first loop imports, too")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each kind (%(default)s)")


def _run(options: argparse.Namespace, folder: Path) -> int:
    kinds = tuple(options.kinds.split(",")) if options.kinds else tuple(KINDS)
    path = ranks(options.out, folder, kinds=kinds, world=options.ranks, runs=options.pairs, cold=options.cold)
    print(f"written to {path.name}")
    return 0


def ranks(
    out: Path, folder: Path, *, kinds: Sequence[str] = tuple(KINDS), world: int = 4, runs: int = 3, cold: bool = False
) -> Path:
    """Measure, print a table, and write the result file.

    Args:
        out: folder of the result file.
        folder: the files are written here.
        kinds: keys of `KINDS`.
        world: number of ranks: 2, 4, 8 or 16.
        runs: of each kind.
        cold: whether imports count.

    Raises:
        UnequalWork: an unknown kind, or a rank says something else than what differs.
        ContestantFailed: a rank ends without a report.
    """
    if wrong := [kind for kind in kinds if kind not in KINDS]:
        raise UnequalWork(f"--kinds needs some out of {', '.join(KINDS)}, got {', '.join(wrong)}")
    if world not in (2, 4, 8, 16):
        raise UnequalWork(f"--ranks needs a number that divides a batch of {BATCH}, 2, 4, 8 or 16, got {world}")
    _write(folder)
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for number in range(runs):
        for kind in kinds:
            one = _measure(folder, kind, world, cold)
            _check(kind, one)
            found[kind].append({"seconds": [rank["seconds"] for rank in one], "cpu_s": [rank["cpu_s"] for rank in one],
                                "error": one[0]["error"]})  # fmt: skip
            print(f"run {number + 1} of {runs}: {kind}, {max(found[kind][-1]['seconds']):.2f} s", file=sys.stderr)
    largest = {kind: Spread.of([max(run["seconds"]) for run in each]) for kind, each in found.items()}
    print(_table(largest))
    settings = {"ranks": world, "files": FILES, "images": IMAGES, "batch": BATCH, "runs": runs, "cold": cold}
    document = report.header("ranks", settings)
    document["goals"] = {"seconds": GOAL}
    document["largest_s"] = {kind: asdict(spread) for kind, spread in largest.items()}
    document["last_error_s"] = max((spread.most for kind, spread in largest.items() if KINDS[kind]), default=None)
    document["runs"] = found
    return report.write(document, out)


def _write(folder: Path) -> None:
    """Photographs in files, the same with one file fewer, and with a longer file."""
    from gpupipe.comparison.photographs import write_shards

    same = folder / "same"
    same.mkdir()
    names = [path.name for path in write_shards(same, count=IMAGES, shards=FILES)]
    for other in FOLDERS.values():
        shutil.copytree(same, folder / other)
    (folder / FOLDERS["files"] / names[-1]).unlink()
    with (folder / FOLDERS["file size"] / names[0]).open("ab") as file:
        file.write((same / names[0]).read_bytes())


def _measure(folder: Path, kind: str, world: int, cold: bool) -> list[dict[str, Any]]:
    """Run all ranks; what each of them reports, in their order."""
    started: list[subprocess.Popen[bytes]] = []
    with ExitStack() as files, socket.create_server(("127.0.0.1", 0)) as listener:
        said = [[files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2)] for _ in range(world)]
        try:
            for rank, (out, errors) in enumerate(said):
                started.append(_start(folder, kind, rank, world, cold, listener, out, errors))
            failed = _failed(started, time.monotonic() + _LIMIT)
        finally:
            for process in started:
                process.kill()
                process.wait()
        texts = [[_text(file) for file in both] for both in said]
    if failed is not None:
        status = started[failed].returncode
        how = f"did not end within {_LIMIT} s" if status == -signal.SIGKILL else ending(status)
        last = (texts[failed][1].strip().splitlines() or ["it said nothing"])[-1]
        raise ContestantFailed(kind, how, f"rank {failed} ({kind}) {how}: {last[:300]}")
    return [json.loads(out.splitlines()[-1]) for out, _ in texts]


def _failed(started: Sequence[subprocess.Popen[bytes]], until: float) -> int | None:
    """Wait for the end of all ranks; the first that failed, for which others may wait, or has not ended in time."""
    while time.monotonic() < until:
        ended = [process.poll() for process in started]
        if any(ended):
            return next(rank for rank, status in enumerate(ended) if status)
        if None not in ended:
            return None
        time.sleep(0.05)
    return next(rank for rank, process in enumerate(started) if process.poll() is None)


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _start(
    folder: Path,
    kind: str,
    rank: int,
    world: int,
    cold: bool,
    listener: socket.socket,
    out: IO[str],
    errors: IO[str],
) -> subprocess.Popen[bytes]:
    variables: dict[str, Any] = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": listener.getsockname()[1]}
    variables |= {"TORCHELASTIC_USE_AGENT_STORE": True, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": 1}
    words = [str(folder), "" if kind == "nothing" else kind, "cold" if cold else "warm", str(listener.fileno())]
    return subprocess.Popen(
        tied.command(str(Path(__file__).with_name("rank_start.py")), *words),
        cwd=_ROOT,
        env={**environment(), **{name: str(value) for name, value in variables.items()}},
        pass_fds=() if rank else (listener.fileno(),),
        stdout=out,
        stderr=errors,
    )


def _check(kind: str, every: Sequence[Mapping[str, Any]]) -> None:
    """Check that every rank names the one that differs, and in what."""
    text = KINDS[kind] and f"got rank {WRONG} has {KINDS[kind]}"
    for one in every:
        if text not in one["error"] or bool(text) != bool(one["error"]):
            wanted, got = text or "a batch", one["error"] or "a batch"
            raise UnequalWork(f"rank {one['rank']} ({kind}) needs to give {wanted!r}, got {got!r}")


def _table(largest: Mapping[str, Spread]) -> str:
    """Of the last rank to raise in each run: the median, and the least and the most, which the goal is about."""
    lines = [f"{'what differs':<18}{'seconds of the last rank':>30}"]
    for kind, spread in largest.items():
        goal = f"   goal <= {GOAL:g}: {'met' if spread.most <= GOAL else 'NOT met'}"
        lines.append(f"{kind:<18}{spread!s:>30}{goal if KINDS[kind] else '   to its first batch'}")
    return "\n".join(lines)
