"""Lowering: every class of nodes has one, it reads no data, and a chain on its way is a legal one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpupipe import Dataset
from gpupipe.errors import GpupipeError
from gpupipe.flow.run import Context, Run
from gpupipe.flow.sources.arrays import RangeFlow
from gpupipe.optimize.lower.compile import LOWERINGS, Lowered, lower, lower_dry, lower_in
from gpupipe.optimize.pending import Pending
from gpupipe.plan.node import ElementType
from gpupipe.plan.sources import Counted, FromGenerator
from gpupipe.spec import LEAF, TensorSpec
from tests.algebra.test_node_facts import kinds

NUMBER = ElementType(LEAF, (TensorSpec((), "int64"),))


def test_every_class_of_nodes_has_a_lowering() -> None:
    bases = {kind for kind in kinds() if kind.__subclasses__() and not hasattr(kind, "facts")}

    assert {kind for kind in kinds() if kind not in LOWERINGS} - bases == {Counted}  # which never runs


class _Counted:
    """A generator that counts how often it was called, and what it gave."""

    calls = given = 0

    def __call__(self) -> Iterator[int]:
        self.calls += 1
        for i in range(3):
            self.given += 1
            yield i


def _chain(source: Any) -> Dataset:
    return Dataset.from_generator(source).map(lambda x: x + 1, traced=False).batch(2)


def test_lowering_reads_nothing_and_says_which_first_element_it_needs() -> None:
    source = _Counted()
    dataset = _chain(source)

    steps = lower(dataset.plan, dataset.options().resolve())
    assert isinstance(next(steps).node, FromGenerator)
    assert steps.send(NUMBER.specs).node.name == "map"
    with pytest.raises(StopIteration) as done:
        steps.send(NUMBER.specs)
    assert source.calls == 0
    assert done.value.value.element.specs == (TensorSpec((None,), "int64"),)


def test_what_an_earlier_run_learned_is_not_asked_again() -> None:
    source = _Counted()
    dataset = _chain(source)
    settings = dataset.options().resolve()
    run = Run(settings)
    learned = lower_in(dataset.plan, settings, Context(run)).learned
    assert (source.calls, source.given) == (1, 1)
    assert list(learned.values()) == [NUMBER, NUMBER]

    with pytest.raises(StopIteration) as done:
        next(lower(dataset.plan, settings, learned))

    run.close()
    assert source.calls == 1
    lowered: Lowered = done.value.value
    assert lowered.learned == learned


def test_a_chain_that_will_not_run_asks_for_nothing() -> None:
    source = _Counted()

    assert lower_dry(_chain(source).plan, Dataset.range(1).options().resolve()).element.specs[0].dtype is None
    assert source.calls == 0


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"batch": (2, False), "unstack": True}, "rows that are batches"),
        ({"above": (lambda flow: flow,)}, "steps above a batch"),
        ({"values": ()}, "a number of leaves other than"),
        ({"references": frozenset([1])}, "columns that it does not have"),
        ({"on_gpu": frozenset([3])}, "columns that it does not have"),
    ],
)
def test_an_illegal_chain_on_its_way_is_refused(wrong: dict[str, Any], complaint: str) -> None:
    good = Pending.columns_of(RangeFlow(range(3), NUMBER.specs[0].dtype), NUMBER)
    given = {"flow": good.flow, "columns": 1, "values": good.values, "element": NUMBER, **wrong}

    with pytest.raises(GpupipeError, match=complaint):
        Pending(**given)
