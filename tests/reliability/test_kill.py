"""A consumer that is killed at any point and started again behind its last state misses and repeats nothing."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.reliability import consumer
from tests.selection import FULL

KILLS = 20 if FULL else 2
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    consumer.write_data(folder)
    return folder


@contextmanager
def started(name: str, data: Path, state: Path, elements: int) -> Iterator[subprocess.Popen[str]]:
    """A consumer that is asked for so many elements, and then waits."""
    command = [sys.executable, "-m", "tests.reliability.consumer", name, str(data), str(state)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        try:
            assert process.stdin is not None
            process.stdin.write("\n" * elements)
            process.stdin.flush()
            yield process
        finally:
            process.kill()


def told(process: subprocess.Popen[str]) -> Iterator[list[str]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line.split()


def delivered(state: Path) -> int:
    return int(json.loads(state.read_text())["delivered"]) if state.exists() else 0


def note(line: list[str], found: dict[int, str]) -> None:
    """Which element a line tells of; the last line of a consumer that was killed may be half a line."""
    if len(line) == 2 and line[0].isdigit() and len(line[1]) == 24:
        found[int(line[0])] = line[1]


@pytest.mark.timeout(600 if FULL else 120)
@pytest.mark.parametrize("name", consumer.CHAINS)
def test_killed_and_gone_on_with(name: str, data: Path, tmp_path: Path) -> None:
    if name.startswith("DALI"):
        pytest.importorskip("nvidia.dali")
    with started(name, data, tmp_path / "whole.json", 1000) as process:
        whole = [line[1] for line in told(process) if line[0].isdigit()]
        assert process.wait(60) == 0
    assert len(whole) > 4
    rng = random.Random(name)
    state = tmp_path / "state.json"
    found: dict[int, str] = {}
    inside = 0
    # So many are in place when it is killed, while it makes one more: none the first time, all the last time.
    points = [0, *sorted(rng.randint(2, len(whole) - 2) for _ in range(KILLS - 1)), len(whole)]
    for point in points:
        before = delivered(state)
        inside += 0 < before < len(whole)
        # What was printed and is in no state comes once more.
        found = {place: text for place, text in found.items() if place <= before}
        with started(name, data, state, point - before + 1) as process:
            for line in told(process):
                note(line, found)
                if line[0] == "begin":
                    assert int(line[1]) == before
                if line[0] != "end" and len(found) >= point and point < len(whole):
                    time.sleep(rng.random() ** 3 * 0.02)  # most often while the next one is made or written down
                    break
            process.kill()
            for line in told(process):  # what it had printed when it was killed
                note(line, found)
            process.wait(60)
    assert sorted(found) == list(range(1, len(whole) + 1))
    assert inside >= KILLS - 1, "each but the first was to leave a state in the middle"
    stream = [found[i] for i in sorted(found)]
    if name in consumer.ANY_ORDER:
        assert Counter(stream) == Counter(whole)
    else:
        assert stream == whole
