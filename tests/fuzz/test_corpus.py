"""The inputs that fuzzing has saved: each is survived, and together they reach the parsers' branches."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.replay import CORPUS, PARSERS, TARGETS, inputs, target


@pytest.mark.parametrize("name", TARGETS)
def test_every_saved_input_is_survived(name: str) -> None:
    one = target(name)
    saved = list(inputs(CORPUS / name))
    assert saved

    for file, data in saved:
        try:
            one(data)
        except Exception as error:
            raise AssertionError(f"the input {name}/{file} is not survived") from error


def test_the_saved_inputs_reach_the_branches_of_the_parsers_in_little_memory() -> None:
    pytest.importorskip("coverage")
    command = [sys.executable, "-m", "tests.fuzz.replay"]  # a process of its own: imports and memory count from zero
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    assert found["parsers"].keys() == PARSERS.keys()
    for parser, counts in found["parsers"].items():
        assert counts["branches"] > 50
        assert counts["reached"] >= 0.95 * counts["branches"], (parser, counts)
    assert found["peak"] is None or found["peak"] < 256


def test_the_saved_inputs_are_few_and_small() -> None:
    sizes = [len(data) for name in TARGETS for _, data in inputs(CORPUS / name)]

    assert len(sizes) < 400
    assert sum(sizes) < 1_000_000
