"""That every op has a test of its meaning, and that this test fails if the meaning is wrong."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.break_reference import CLASSES, TESTS
from tests.conformance.references import REFERENCES

ROOT = Path(__file__).parents[2]


def test_every_op_names_the_test_of_its_reference() -> None:
    assert TESTS.keys() == CLASSES.keys()
    assert sum(map(len, REFERENCES.values())) == len(TESTS)
    kinds = {kind.partition(" ")[0] for ops in REFERENCES.values() for kind, _ in ops.values()}
    assert kinds == {"values", "library", "equation"}


@pytest.mark.parametrize("path", REFERENCES)
def test_the_tests_that_are_named_exist(path: str) -> None:
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body

    assert {test for _, test in REFERENCES[path].values()} <= {
        node.name for node in body if isinstance(node, ast.FunctionDef)
    }


@pytest.fixture(scope="module")
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What became of the ops that were selected, from one process for all of them."""
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    names = [op for call in calls if call is not None and (op := call.params.get("op")) in TESTS]
    path = tmp_path_factory.mktemp("references") / "verdicts.json"
    options = ["-n", "0", "-q", "--tb=no", "-p", "no:cacheprovider", "-p", "tests.conformance.break_reference"]
    breaking = [f"--break-reference={name}" for name in names]
    command = [*options, f"--verdicts={path}", *breaking, *dict.fromkeys(TESTS[name] for name in names)]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *command], cwd=ROOT, capture_output=True, text=True, timeout=500
    )
    assert path.exists(), run.stdout + run.stderr
    return dict(json.loads(path.read_text()))


@pytest.mark.slow
@pytest.mark.alone  # one process breaks all ops: others would do it again
@pytest.mark.timeout(600)
@pytest.mark.parametrize("op", TESTS)
def test_a_wrong_reference_turns_the_test_of_its_op_red(op: str, verdicts: dict[str, str]) -> None:
    if verdicts[op].startswith("skipped"):
        pytest.skip(f"{TESTS[op]} is skipped here")
    assert verdicts[op] == "red"
