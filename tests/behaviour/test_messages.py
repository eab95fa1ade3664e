"""What is said of a mistake: which step, which function, what was got."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options
from gpupipe.errors import FunctionError, PlanTypeError
from tests.behaviour.model import outcomes

R = Dataset.range


AHEAD = gp.compat.parallel_interleave(lambda x: 5, 2, buffer_output_elements=2)  # type: ignore[arg-type,return-value]

SAID: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: list(R(3).scan(0, lambda s, x: (s, None))), PlanTypeError, "new state, output.*got None as the output"),
    (lambda: R(3).take_while(lambda x: None), PlanTypeError, "take_while needs a function .*None from the lambda"),
    (
        lambda: R(3).group_by_window(lambda x: None, lambda key, group: group, 2),
        PlanTypeError,
        "group_by_window needs a function .*None from the lambda",
    ),
    (
        lambda: R(3).bucket_by_sequence_length(lambda x: None, [1], [1, 1]),
        PlanTypeError,
        "bucket_by_sequence_length needs a function .*None from the lambda",
    ),
    (lambda: R(4).repeat()[2**62], IndexError, r"of an infinite dataset: indices are 0 to 2\*\*62 - 1"),
    (lambda: Dataset.load("memory://s"), gp.PlanError, "load needs a local path, got 'memory://s'"),
    (lambda: R(3).apply(AHEAD), PlanTypeError, "interleave needs a function that returns a Dataset, got int"),
]


@pytest.mark.parametrize(("make", "kind", "text"), SAID)
def test_a_mistake_is_named(make: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        make()


# ---- an iterator that is asked by a function of its own chain


WITHIN: list[Callable[[Callable[[Any], Any]], Dataset]] = [
    lambda fn: R(3).map(fn),
    lambda fn: R(3).map(fn, num_parallel_calls=2),
    lambda fn: R(3).map(fn).prefetch(1),
    lambda fn: R(3).map(fn, spec=gp.TensorSpec((), "int64")).batch(1),
    lambda fn: R(3).flat_map(lambda x: R(fn(x))),
]


@pytest.mark.parametrize("make", WITHIN)
def test_next_inside_of_the_own_chain_is_an_error_of_each_element(make: Any) -> None:
    items: list[Iterator[Any]] = []
    chain = make(lambda x: int(next(items[0])) + int(x))
    items.append(iter(chain))

    for _ in range(3):
        with pytest.raises(FunctionError, match=r"next\(\) needs to be called from outside"):
            next(items[0])
    assert next(items[0], None) is None


# ---- what takes a turn, what counts


@pytest.mark.parametrize("bad", [1, 7, 12])
def test_an_error_that_is_raised_takes_no_turn_of_an_interleave(bad: int) -> None:
    def inverse(x: Any) -> Any:
        return int(x) if int(x) not in (1, bad) else 1 // 0

    chain = R(20).map(inverse).window(3).interleave(lambda w: w, cycle_length=3)
    batched = R(3).interleave(lambda i: R(4).map(inverse).batch(1), cycle_length=2, block_length=2)

    for each in (chain, batched):
        raised = [x for x in outcomes(each) if x != "error"]
        assert raised == outcomes(each.with_options(Options(on_error="skip")))


@pytest.mark.parametrize("deep", [False, True])
def test_rows_behind_a_ragged_batch_are_padded_with_ragged_rows(deep: bool) -> None:
    rows = R(1, 4).map(lambda n: {"x": np.ones((int(n), 2), np.float32), "s": [b"a"] * int(n)})
    batches = rows.ragged_batch(1).ragged_batch(2) if deep else rows.ragged_batch(2)

    *_, last, zeros = batches.pad_to_cardinality(3)

    assert (bool(last["valid"]), bool(zeros["valid"])) == (True, False)
    for key in ("x", "s"):
        assert isinstance(zeros[key], gp.Ragged)
        assert (zeros[key].dtype, zeros[key].ragged_rank) == (last[key].dtype, last[key].ragged_rank)
        assert (len(zeros[key]), zeros[key].flat_values.size) == (len(last[key]), 0)
