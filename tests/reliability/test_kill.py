"""A consumer that is killed at any point and started again behind its last state misses and repeats nothing."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.reliability import consumer

FULL = bool(os.environ.get("GPUPIPE_FULL"))
KILLS = 20 if FULL else 2
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    consumer.write_data(folder)
    return folder


@contextmanager
def started(name: str, data: Path, state: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.reliability.consumer", name, str(data), str(state)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def told(process: subprocess.Popen[str]) -> Iterator[list[str]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line.split()


def delivered(state: Path) -> int:
    return int(json.loads(state.read_text())["delivered"]) if state.exists() else 0


def note(line: list[str], found: dict[int, str]) -> int:
    """Note an element that was printed; answer how many that is. The last line may be half a line."""
    if len(line) != 2 or not line[0].isdigit() or len(line[1]) != 24:
        return 0
    found[int(line[0])] = line[1]
    return 1


@pytest.mark.timeout(600 if FULL else 120)
@pytest.mark.parametrize("name", consumer.CHAINS)
def test_killed_and_gone_on_with(name: str, data: Path, tmp_path: Path) -> None:
    if name.startswith("DALI"):
        pytest.importorskip("nvidia.dali")
    with started(name, data, tmp_path / "whole.json") as process:
        whole = [line[1] for line in told(process) if line[0].isdigit()]
        assert process.wait(60) == 0
    assert len(whole) > 4
    rng = random.Random(name)
    state = tmp_path / "state.json"
    found: dict[int, str] = {}
    sizes, seconds = [0], [0.0]
    for kill in range(KILLS + 1):
        left = len(whole) - delivered(state)
        # The first time it is killed inside its first batch; the last time not at all.
        after = 0 if kill == 0 else left + 1 if kill == KILLS else rng.randint(0, max(1, left // 2))
        # What was printed and is in no state comes once more.
        found = {place: text for place, text in found.items() if place <= delivered(state)}
        with started(name, data, state) as process:
            seen = 0
            for line in told(process):
                seen += note(line, found)
                if line[0] == "state":
                    sizes.append(int(line[1]))
                    seconds.append(float(line[2]) if kill else 0.0)
                if line[0] != "end" and seen == after:
                    time.sleep(rng.random() * 0.02)
                    break
            process.kill()
            for line in told(process):  # what it had printed when it was killed
                note(line, found)
            process.wait(60)
    assert sorted(found) == list(range(1, len(whole) + 1))
    stream = [found[i] for i in sorted(found)]
    if name in consumer.ANY_ORDER:
        assert Counter(stream) == Counter(whole)
    else:
        assert stream == whole
    print(f"{name}: {KILLS} kills, state of {max(sizes):,} bytes at most, first element after {max(seconds):.3f} s")
