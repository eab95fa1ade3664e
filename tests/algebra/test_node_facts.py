"""Facts of plan nodes: every class lists its own, and the type of the elements is what `infer` says."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import pytest
from hypothesis import given, settings

from gpupipe import Dataset
from gpupipe.classes import dataclass
from gpupipe.optimize.lower.compile import LOWERINGS
from gpupipe.optimize.rules.plan_rules import rewrite
from gpupipe.plan.node import Node, Step, draws, walk
from tests.behaviour.programs import Program, build, programs
from tests.fuzz.replay import peak_of


def kinds(base: type[Node] = Node) -> list[type[Node]]:
    """Every class of nodes of the package. What `dataclass` made slots of is another class than the one it read."""
    len(LOWERINGS)  # imports those that few chains have
    found = dict.fromkeys(kind for sub in base.__subclasses__() for kind in (sub, *kinds(sub)))
    return [kind for kind in found if getattr(sys.modules[kind.__module__], kind.__name__, None) is kind]


def _silent(kinds: Iterable[type[Node]]) -> list[str]:
    """The classes that list no facts, neither their own nor those of the step that they are a form of."""
    return [kind.__name__ for kind in kinds if not hasattr(kind, "facts") and not kind.__subclasses__()]


def test_every_class_of_nodes_lists_its_facts() -> None:
    assert len(kinds()) > 40
    assert _silent(kinds()) == []


def test_a_class_without_facts_is_named() -> None:
    @dataclass(frozen=True, slots=True, eq=False)
    class Forgetful(Step):
        """A step that lists nothing."""

    assert _silent([Forgetful]) == ["Forgetful"]


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(program=programs())
def test_the_type_of_a_node_is_what_it_infers_from_those_of_its_inputs(program: Program) -> None:
    for node in walk(rewrite(build(program).plan)[0]):
        inputs = [source.element for source in node.sources]
        if all(element.structure is not None for element in inputs):
            assert node.infer(*inputs) == node.element


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (Dataset.range(3), False),
        (Dataset.range(3).shuffle(2), True),
        (Dataset.range(3).shuffle(2, reshuffle_each_iteration=False), False),
        (Dataset.range(3).flat_map(lambda x: Dataset.range(3).shuffle(2)), True),
        (Dataset.random(seed=1), False),
        (Dataset.random(seed=1, rerandomize_each_iteration=True), True),
    ],
)
def test_a_chain_says_whether_it_draws_anew_in_each_epoch(dataset: Dataset, expected: bool) -> None:
    assert draws(dataset.plan) is expected


def test_a_list_of_many_bytes_is_told_apart_by_its_elements_without_a_copy_of_them() -> None:
    images = [bytes([number]) * 1_000_000 for number in range(4)]
    Dataset.from_tensor_slices(images * 2)  # imports

    def alike_and_another() -> None:
        plans = [Dataset.from_tensor_slices(images * 16).plan for _ in range(2)]
        assert plans[0] == plans[1] != Dataset.from_tensor_slices([*images * 15, *images[:3], images[0]]).plan

    assert peak_of(alike_and_another) < 1_000_000
    assert Dataset.from_tensor_slices([bytes([7]) * 9]).plan == Dataset.from_tensor_slices([bytes([7]) * 9]).plan
