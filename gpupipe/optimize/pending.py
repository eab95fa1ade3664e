"""pending: a chain that is being lowered: the columns that flow, and the expressions over them that are its elements.

Deferral is the one rule of placement. A traced map computes nothing: it replaces the leaves of the element by
expressions over the columns that flow. Nodes that do not read values pass the expressions on; they are computed at
the first node that needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from ..classes import dataclass
from ..errors import GpupipeError
from ..flow.run import Flow
from ..graph.values import Identity, Input, Value, rewrite_values
from ..plan.node import ElementType, Node
from ..spec import LEAF, Structure, TensorSpec

__all__ = ["AHEAD", "UNKNOWN", "Learns", "Pending", "Step", "renumber", "size_of"]

UNKNOWN = ElementType(LEAF, (TensorSpec(None, None),))
"""The type of elements of which none was read."""


AHEAD = 2
"""The default number of finished batches that wait, besides those in progress: each is 38 MB for 64 images of
224 x 224."""


Step = Callable[[Flow], Flow]
"""A node that does not read values, to be put on top of a stage that is not placed yet."""


@dataclass(frozen=True, slots=True)
class Learns:
    """How a step learns the type of its elements from the first of them.

    Attributes:
        structure: returns the structure of the elements, once there was one.
        expect: receives the type instead where an earlier run has learned it.
        batched: returns whether the elements are batches, once there was one.
    """

    structure: Callable[[], Structure | None]
    expect: Callable[[ElementType], None] = lambda element: None
    batched: Callable[[], bool] = lambda: False

    @classmethod
    def of(cls, structure: Callable[[], Structure | None], seen: list[Structure]) -> Learns:
        """For a function that stores the structure of its first result in `seen`."""
        return cls(structure, lambda element: None if seen else seen.append(element.structure or LEAF))


@dataclass(frozen=True)
class Pending:
    """A chain being lowered.

    Attributes:
        flow: yields the physical elements.
        columns: how many columns they have.
        values: one expression per leaf, over `Input(column)`; for one row where `batch` or `unstack` is set.
        element: the logical type of the elements.
        batch: (size, drop) of a `batch` whose rows are still expressions.
        aligned: something is zipped to these batches.
        unstack: the physical elements are batches, the expressions are over their rows.
        above: nodes above that batch.
        ready: finished batches that a `prefetch` above asked for; 0 if none did: `AHEAD` of them may wait.
        ignores: set if an `ignore_errors` is directly below that batch, which leaves failed elements out; whether it
            logs each of them. None if there is none.
        references: columns that may hold references to records instead of payloads, or arrays of a cache on a GPU.
        on_gpu: columns whose arrays are delivered where they are, on a GPU.
        line: of that batch.
        steps: the steps lowered so far, for `explain()`.
        learns: set if the type is unknown so far and has to be learned from the first element.
    """

    flow: Flow
    columns: int
    values: tuple[Value, ...]
    element: ElementType
    batch: tuple[int, bool] | None = None
    aligned: bool = False
    unstack: bool = False
    above: tuple[Step, ...] = ()
    ready: int = 0
    ignores: bool | None = None
    references: frozenset[int] = frozenset()
    on_gpu: frozenset[int] = frozenset()
    line: str = ""
    steps: tuple[str, ...] = ()
    learns: Learns | None = None

    def __post_init__(self) -> None:
        rows = self.batch is not None or self.unstack
        for wrong, what in (
            (self.batch is not None and self.unstack, "a batch of rows that are batches"),
            (self.above and not rows, "steps above a batch, and no batch"),
            (len(self.values) != len(self.element.specs), "a number of leaves other than its type says"),
            (max((*self.references, *self.on_gpu), default=-1) >= self.columns, "columns that it does not have"),
        ):
            if wrong:
                raise GpupipeError(f"a chain was lowered to {what}; please report it")

    @property
    def placed(self) -> bool:
        """Whether every leaf is a column already."""
        if self.batch is not None or self.unstack or len(self.values) != self.columns or self.references:
            return False
        return all(isinstance(value, Input) and value.index == i for i, value in enumerate(self.values))

    def through(self, step: Step, text: str, element: ElementType | None = None) -> Pending:
        """Put a node that does not read values on top."""
        now = replace(self, element=element or self.element, steps=(*self.steps, text))
        if self.batch is not None or self.unstack:
            return replace(now, above=(*self.above, step))
        return replace(now, flow=step(self.flow))

    def then(self, flow: Flow, text: str, element: ElementType | None = None) -> Pending:
        """Put a step on top: `flow` reads this chain's elements and yields the same leaves, or leaves of a new type."""
        if element is None:
            return replace(self, flow=flow, steps=(*self.steps, text))
        return Pending.columns_of(flow, element, (*self.steps, text))

    def with_first(self, flow: Flow, spec: TensorSpec, text: str, element: ElementType) -> Pending:
        """Put a step on top that adds a leaf before the others."""
        return replace(
            self,
            flow=flow,
            columns=self.columns + 1,
            values=(Input(0, spec), *renumber(self.values, 1)),
            element=element,
            references=frozenset(column + 1 for column in self.references),
            on_gpu=frozenset(column + 1 for column in self.on_gpu),
            steps=(*self.steps, text),
        )

    @classmethod
    def learning(cls, node: Node, flow: Flow, steps: Sequence[str], learns: Learns) -> Pending:
        """A chain whose element type is learned from the first element, as far as it is not declared."""
        element = node.element
        pending = cls.columns_of(flow, element if element.structure is not None else UNKNOWN, steps)
        return pending if element.known else replace(pending, learns=learns)

    @classmethod
    def columns_of(
        cls, flow: Flow, element: ElementType, steps: Sequence[str] = (), references: bool = False
    ) -> Pending:
        """A chain whose leaves are computed: one column each."""
        values = tuple(Input(i, spec) for i, spec in enumerate(element.specs))
        held = frozenset(range(len(values))) if references else frozenset()
        return cls(flow, len(values), values, element, steps=tuple(steps), references=held)


def size_of(specs: Sequence[TensorSpec]) -> int | None:
    """Bytes of an element of these specs; None if unknown."""
    total = 0
    for spec in specs:
        if spec.shape is None or None in spec.shape or spec.dtype is None or spec.dtype is bytes:
            return None
        total += prod(n or 0 for n in spec.shape) * int(spec.dtype.itemsize)
    return total


def renumber(values: Sequence[Value], shift: int, own: Identity | None = None) -> tuple[Value, ...]:
    """Shift the columns that expressions read by `shift`; `own` replaces the identity of the element itself."""

    def rule(value: Value) -> Value:
        if isinstance(value, Input):
            return Input(value.index + shift, value.spec)
        if isinstance(value, Identity):
            if value.index >= 0:
                return Identity(value.index + shift)
            return own or value
        return value

    return rewrite_values(values, rule)
