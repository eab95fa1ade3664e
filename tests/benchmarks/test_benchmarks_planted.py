"""python -m benchmarks profile: planted bottlenecks, and what is printed about them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.planted import PROGRAMS, Outcome, Program, planted, run_program, table


def test_there_are_24_programs() -> None:
    assert Counter(program.kind for program in PROGRAMS) == {
        "storage": 3, "parse": 3, "decode": 3, "python": 3, "loop": 3, "queue": 3, "balanced": 6,
    }  # fmt: skip
    assert {(one.plant, one.severity) for one in PROGRAMS} == {(p.plant, n) for p in PROGRAMS for n in (1, 2, 3)}


@pytest.mark.parametrize("plant", ["slow Python map", "starved prefetch"])
def test_a_planted_bottleneck_is_named_and_mended(plant: str, tmp_path: Path) -> None:
    program = next(one for one in PROGRAMS if (one.plant, one.severity) == (plant, 2))
    outcome = run_program(program, tmp_path, pairs=1, steps=12)

    assert outcome.right
    assert outcome.predicted > 1.2 < outcome.measured  # both are about 2


def test_the_table_counts_the_right_ones_and_the_errors() -> None:
    good = Outcome("slow parse", 1, "parse", "parse", "host: parse in half the time", 1.5, 2.0)
    bad = Outcome("balanced", 2, "balanced", "loop", "-", 1.1, 1.0)
    text = table([good, bad])

    assert "named 1 of 2 (goal: 22 of 24); median error of the predicted gain 18%" in text
    assert "WRONG" in text.splitlines()[1]


def test_the_result_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(program: Program, folder: Path, pairs: int) -> Outcome:
        return Outcome(program.plant, program.severity, program.kind, program.kind, "", 2.0, 2.0)

    monkeypatch.setattr("benchmarks.planted.run_program", run)
    path = planted(tmp_path, tmp_path, plants=("balanced", "slow parse"))

    assert path.name.startswith("profile-")
    assert '"programs": 6' in path.read_text()
    assert '"right": 6' in path.read_text()
