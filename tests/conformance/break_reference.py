"""break_reference: a pytest plugin that gives ops a wrong meaning, and says whether their tests notice.

    python -m pytest -p tests.conformance.break_reference --break-reference Invert tests/ops/test_tones.py

It runs for each op the test that `REFERENCES` names, as it is and then with a wrong `reference`, until one of its
parameters fails. `--verdicts` writes to a JSON file what became of each op: "red" is as it should be.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpupipe.graph.arithmetic import Arithmetic
from gpupipe.graph.op import Op
from gpupipe.ops.catalogue import CATALOGUE
from gpupipe.transform.dali.library import POOL
from tests.conformance.references import REFERENCES

CLASSES = {cls.__name__: cls for cls in (*CATALOGUE, Arithmetic)}
TESTS = {name: f"{path}::{test}" for path, ops in REFERENCES.items() for name, (_, test) in ops.items()}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--break-reference", action="append", metavar="CLASS", default=[], help="give it a wrong meaning")
    parser.addoption("--verdicts", metavar="FILE", type=Path, help="where to write what became of each op")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Proof())


class Proof:
    """Runs tests with right and wrong references."""

    def __init__(self) -> None:
        self._outcomes: set[str] = set()

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Note what became of a part of a test: of its own lines, a fixture or its end."""
        if call.excinfo is None:
            self._outcomes |= {"passed"} if call.when == "call" else set()
        elif call.excinfo.errisinstance(pytest.skip.Exception):
            self._outcomes.add("skipped")
        else:
            mine = call.when == "call" and call.excinfo.errisinstance(AssertionError)
            self._outcomes.add("failed" if mine else f"ended by {call.excinfo.exconly()}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run each test once with the right references, and once for each op with its wrong one."""
        verdicts, right = dict[str, str](), dict[str, str]()
        for name in session.config.getoption("--break-reference") or ():
            test = TESTS[name]
            items = [item for item in session.items if item.nodeid.partition("[")[0] == test]
            right[test] = right.get(test) or self._outcome(items)
            if right[test] != "passed":
                verdicts[name] = f"{right[test]} with the right reference"
                continue
            with wrong_meaning(CLASSES[name]):
                found = self._outcome(items)
            verdicts[name] = "red" if found == "failed" else f"{found} with a wrong reference"
        if path := session.config.getoption("--verdicts"):
            path.write_text(json.dumps(verdicts))
        return True

    def _outcome(self, items: list[pytest.Item]) -> str:
        """Run tests until one fails: "failed", "passed", "skipped", or what ended one beside its assertions."""
        self._outcomes = set()
        for item in items:
            item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
            if wrong := self._outcomes - {"passed", "skipped"}:
                return min(wrong)
        return "passed" if "passed" in self._outcomes else "skipped"


@contextmanager
def wrong_meaning(cls: type[Op]) -> Iterator[None]:
    """Let `reference` of a class give something else; of an op that has none, `array`, or its DALI nodes."""
    method = next(name for name in ("reference", "array", "dali") if getattr(cls, name) is not getattr(Op, name))
    right = getattr(cls, method)

    @functools.wraps(right)  # executors look for `out` among the parameters
    def changed(self: Op, *args: Any, **named: Any) -> Any:
        made = wrong(right(self, *args, **named))
        if (out := named.get("out")) is None:
            return made
        out[...] = made
        return out

    own = cls.__dict__.get(method)
    setattr(cls, method, changed)
    POOL.clear()  # of pipelines that were built with the right one
    try:
        yield
    finally:
        POOL.clear()
        if own is None:
            delattr(cls, method)
        else:
            setattr(cls, method, own)


def wrong(made: Any) -> Any:
    """A result with its first axis rolled by one or, where that is the same, with other numbers of the same type."""
    if isinstance(made, tuple):
        return wrong(made[0]), *made[1:]
    if isinstance(made, bytes):
        return made + b"\0"
    if hasattr(made, "gpu"):  # a node of DALI
        from nvidia.dali import fn

        return fn.cast_like(made + 1, made)
    x = np.asarray(made)
    rolled = np.roll(x, 1, axis=0) if x.ndim else x
    if np.array_equal(rolled, x, equal_nan=x.dtype.kind == "f"):
        rolled = (x + 1 if x.dtype.kind == "f" else x ^ 1).astype(x.dtype)
    return rolled if isinstance(made, np.ndarray) else rolled[()]
