"""delivered: which steps' elements reach the user as they are, so that batches of a GPU may stay there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...flow.maps.to_gpu import PutFlow
from ...graph.values import Input, Value
from ...plan.mixing import Mixture
from ...plan.node import Node
from ...plan.steps import Map
from ...spec import TensorSpec
from ..pending import Pending
from ..place.placer import Placer

__all__ = ["delivered", "on_one_device", "passes", "picks", "reader"]


def delivered(order: Sequence[Node], users: Mapping[int, Sequence[Node]]) -> frozenset[int]:
    """The nodes of a delivered plan, by id, whose elements nobody looks at on their way to the user.

    Args:
        order: all nodes, inputs first, the one that is delivered last.
        users: the nodes that read from a node, by its id.
    """
    found = {id(order[-1])}
    for node in reversed(order[:-1]):
        if all(id(user) in found and passes(user, node) for user in users[id(node)]):
            found.add(id(node))
    return frozenset(found)


def passes(node: Node, source: Node) -> bool:
    """Whether a node gives elements of one of its inputs as they are."""
    if isinstance(node, Map):
        return node.traced is not None and picks(node.traced.outputs)
    return node.facts.as_they_are and not (isinstance(node, Mixture) and source is node.picks)


def picks(values: Sequence[Value]) -> bool:
    """Whether values are leaves of the element that comes in, each at most once: whole batches may pass, then."""
    return all(isinstance(value, Input) for value in values) and len(set(values)) == len(values)


def reader(node: Node, users: Mapping[int, Sequence[Node]]) -> Node | None:
    """What first looks at the elements of a node; None where they reach the end of the plan."""
    waiting = [(user, node) for user in users.get(id(node), ())]
    while waiting:
        user, source = waiting.pop()
        if not passes(user, source):
            return user
        waiting += [(above, user) for above in users.get(id(user), ())]
    return None


def on_one_device(inputs: Sequence[Pending], placer: Placer) -> list[Pending]:
    """Inputs that give one stream of elements: a column that is on a GPU in one of them is put there in all."""
    columns = frozenset[int]().union(*(pending.on_gpu for pending in inputs))
    put = []
    for pending in inputs:
        specs = {value.index: value.spec for value in pending.values if isinstance(value, Input)}
        missing = frozenset(i for i in columns - pending.on_gpu if i not in specs or _may_go(specs[i]))
        if missing:
            which = _named(missing, pending)
            steps = (*pending.steps, f"{which}copied to GPU {placer.choice().device_id}, where the others are")
            flow = PutFlow(pending.flow, missing, placer.hand_over())
            pending = replace(pending, flow=flow, steps=steps)
        put.append(replace(pending, on_gpu=columns))
    return put


def _may_go(spec: TensorSpec) -> bool:
    """Whether a column may hold arrays that `PutFlow` puts."""
    return type(spec) is not TensorSpec or (spec.shape != () and spec.dtype is not bytes)


def _named(columns: frozenset[int], pending: Pending) -> str:
    """Which of the leaves are meant; "" where it is all."""
    structure = pending.element.structure
    names = [] if structure is None else structure.leaf_names()
    leaves = zip(names, pending.values, strict=False)  # of elements that nobody knows yet there is one value
    meant = [name for name, value in leaves if isinstance(value, Input) and value.index in columns]
    return f"{', '.join(map(repr, meant))} " if len(meant) < len(names) else ""
