"""selection: which tests `make test` runs, by rule. `make test-all` runs all of them.

1. Cases of ops: the first of each op and dtype, on each executor that computes it by itself.
2. Of every other function, as many items as `BUDGET` allows by timings.json, at least one: first those that bring a
   value of a parameter which did not come before, then the rest.
3. A function an item of which takes more than `LONGEST` is left out, unless it draws random programs (the mark
   `programs`): of those it draws a tenth.

timings.json holds the CPU-seconds of an item for each function that needs more than `BUDGET` for all of its items; one
that is not in it runs whole. tests/timings.py renews it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpupipe.graph.op import Case

__all__ = ["BUDGET", "FULL", "QUICK", "TIMINGS", "function_of", "programs", "selected"]

QUICK = bool(os.environ.get("GPUPIPE_QUICK"))
"""Whether the selection runs: `python -m tests` sets it unless it was given `--all`."""

FULL = bool(os.environ.get("GPUPIPE_FULL"))
"""Whether nothing is left out, as in `make soak`."""

BUDGET = 0.5
"""CPU-seconds of a function."""

LONGEST = 3.0
"""CPU-seconds of an item."""

TIMINGS = Path(__file__).with_name("timings.json")


def programs(count: int) -> int:
    """How many random programs to draw where `make test-all` draws `count`."""
    return max(count // 10, 1) if QUICK else count


def selected(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The items to run, in their order."""
    timings: dict[str, float] = json.loads(TIMINGS.read_text(encoding="utf-8"))
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        functions.setdefault(function_of(item.nodeid), []).append(item)
    kept = {item for name, found in functions.items() for item in _of_function(found, timings.get(name, 0.0))}
    return [item for item in items if item in kept]


def function_of(nodeid: str) -> str:
    """The id of a test without its parameters."""
    return nodeid.partition("[")[0]


def _of_function(items: list[pytest.Item], seconds: float) -> list[pytest.Item]:
    if any(isinstance(value, Case) for value in _parameters(items[0]).values()):
        return list({_kind_of_case(item): item for item in reversed(items)}.values())
    if items[0].get_closest_marker("programs") is not None:
        return items
    if seconds > LONGEST:
        return []
    return items if not seconds else _varied(items)[: max(int(BUDGET / seconds), 1)]


def _kind_of_case(item: pytest.Item) -> tuple[object, ...]:
    """What the first of is run: op, dtype of the first input, and the other parameters."""
    named = _parameters(item)
    case = next(value for value in named.values() if isinstance(value, Case))
    dtype = getattr(case.inputs[0], "dtype", type(case.inputs[0])) if case.inputs else None
    return case.op.name, str(dtype), *(repr(value) for value in named.values() if value is not case)


def _varied(items: list[pytest.Item]) -> list[pytest.Item]:
    """The items that bring a value of a parameter which did not come before, then the others."""
    came, first, rest = set[tuple[str, int]](), list[pytest.Item](), list[pytest.Item]()
    for item in items:
        values = {(name, id(value)) for name, value in _parameters(item).items()}
        (rest if values <= came else first).append(item)
        came |= values
    return first + rest


def _parameters(item: pytest.Item) -> dict[str, object]:
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
