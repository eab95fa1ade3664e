"""pending: a chain half way to running: what flows physically, and what its elements will be once somebody looks.

Deferral is the one rule of placement. A traced map computes nothing: it replaces the leaves of the element by
expressions over the columns that flow. Nodes that do not look at values hand the expressions on; they are computed at
the first node that needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..flow.run import Flow
from ..graph.values import Identity, Input, Value, rewrite_values
from ..plan.node import Element

__all__ = ["AHEAD", "Pending", "Step", "renumber"]

AHEAD = 2
"""Finished batches that wait, beside those in work, where nobody says how many: each is 38 MB for 64 images of
224 x 224."""


Step = Callable[[Flow], Flow]
"""A node that does not look at values, to be put above a stage that is not placed yet."""


@dataclass(frozen=True)
class Pending:
    """A chain being lowered.

    Attributes:
        flow: gives the physical elements.
        columns: how many columns they have.
        values: one expression per leaf, over `Input(column)`; of one row where `batch` or `unstack` is set.
        element: the logical type of the elements.
        batch: (size, drop) of a `batch` whose rows are still expressions.
        aligned: something is zipped to these batches.
        unstack: the physical elements are batches, the expressions are over their rows.
        above: nodes above that batch.
        ready: finished batches that a `prefetch` above asked for; 0 where none did, and `AHEAD` may wait.
        ignores: an `ignore_errors` stands directly below that batch: an element that fails does not come into it;
            whether each of them is logged. None where there is none.
        references: columns that may hold references to records instead of payloads.
        on_gpu: columns whose arrays are delivered where they are, on a GPU.
        steps: what was lowered so far, for `explain()`.
    """

    flow: Flow
    columns: int
    values: tuple[Value, ...]
    element: Element
    batch: tuple[int, bool] | None = None
    aligned: bool = False
    unstack: bool = False
    above: tuple[Step, ...] = ()
    ready: int = 0
    ignores: bool | None = None
    references: frozenset[int] = frozenset()
    on_gpu: frozenset[int] = frozenset()
    steps: tuple[str, ...] = ()

    @property
    def placed(self) -> bool:
        """Whether every leaf is a column already."""
        if self.batch is not None or self.unstack or len(self.values) != self.columns or self.references:
            return False
        return all(isinstance(value, Input) and value.index == i for i, value in enumerate(self.values))

    def through(self, step: Step, text: str, element: Element | None = None) -> Pending:
        """Put a node that does not look at values on top."""
        now = replace(self, element=element or self.element, steps=(*self.steps, text))
        if self.batch is not None or self.unstack:
            return replace(now, above=(*self.above, step))
        return replace(now, flow=step(self.flow))

    @classmethod
    def columns_of(cls, flow: Flow, element: Element, steps: Sequence[str] = (), references: bool = False) -> Pending:
        """A chain whose leaves are all there: one column each."""
        values = tuple(Input(i, spec) for i, spec in enumerate(element.specs))
        held = frozenset(range(len(values))) if references else frozenset()
        return cls(flow, len(values), values, element, steps=tuple(steps), references=held)


def renumber(values: Sequence[Value], shift: int, own: Identity | None = None) -> tuple[Value, ...]:
    """The same expressions when their columns stand `shift` places further right."""

    def rule(value: Value) -> Value:
        if isinstance(value, Input):
            return Input(value.index + shift, value.spec)
        if isinstance(value, Identity):
            if value.index >= 0:
                return Identity(value.index + shift)
            return own or value
        return value

    return rewrite_values(values, rule)
