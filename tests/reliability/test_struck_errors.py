"""Ctrl-C at the entry of any function while bad elements are met: each is raised or left out once, and listed once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from gpupipe import Dataset, Options
from tests.behaviour.model import plain
from tests.reliability.test_interrupts import inside
from tests.selection import FULL, QUICK

STEP = 97 if QUICK else 1 if FULL else 29
"""Every so many calls."""


class Stopped(BaseException):
    """What the program's own handler raises."""


class Strike:
    """Raises at the entry of one function of gpupipe inside `next`, of those that are called in this thread.

    Args:
        at: its number; -1 for none.

    Attributes:
        count: how many were called.
    """

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        if event == "call" and "gpupipe" in frame.f_code.co_filename and inside(frame):
            self.count += 1
            if self.count == self.at + 1:
                raise Stopped  # which ends the profiling


def odd(x: Any) -> Any:
    if x % 4 == 3:
        raise ValueError(f"{int(x)} is bad")
    return x


def chains() -> dict[str, Dataset]:
    numbers = Dataset.range(8).map(odd, traced=False)
    return {
        "map": numbers,
        "batch": numbers.batch(3),
        "windows": numbers.window(3, 2, 1).flat_map(lambda w: w.batch(3)),
        "unbatch": numbers.batch(2).unbatch(),
        "interleave": Dataset.range(2).interleave(lambda x: numbers.take(5), cycle_length=2),
        "ignore_errors": numbers.ignore_errors(log_warning=True).batch(2),
    }


def outcomes(ds: Dataset, at: int, manifest: Path) -> tuple[int, list[Any], int, list[Any], list[Any]]:
    """How many functions were called; elements and errors; what was left out, listed, and written."""
    strike, got = Strike(at), []
    manifest.unlink(missing_ok=True)
    with iter(ds) as items:
        while True:
            try:
                if strike.count <= at or at < 0:
                    sys.setprofile(strike)
                try:
                    element = next(items)
                finally:
                    sys.setprofile(None)
                got.append(plain(element))
            except Stopped:
                continue
            except gp.DataError as error:
                cause = error.__cause__
                got.append((type(error).__name__, str(error), type(cause).__name__))
            except StopIteration:
                break
        listed = [(one.offset, one.stage, one.reason, one.action) for one in items.errors]
        left_out = items.left_out
    lines = [json.loads(line)["offset"] for line in manifest.read_text().splitlines()]
    return strike.count, got, left_out, listed, sorted(set(lines))  # a line may have been written twice


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # what strikes a generator that is closed
@pytest.mark.timeout(600)
@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
@pytest.mark.parametrize("name", chains())
def test_a_bad_element_is_reported_once_wherever_ctrl_c_strikes(name: str, policy: Any, tmp_path: Path) -> None:
    manifest = tmp_path / "bad.jsonl"
    ds = chains()[name].with_options(Options(on_error=policy, error_manifest=str(manifest)))
    count, *want = outcomes(ds, -1, manifest)
    assert count > 100 and want[2]

    for at in range(0, count, STEP):
        assert outcomes(ds, at, manifest)[1:] == tuple(want), at
