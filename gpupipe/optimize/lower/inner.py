"""inner: opens the dataset that `flat_map` and `interleave` make of an element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from ...classes import dataclass
from ...errors import DataError, FunctionError, PlanError, PlanTypeError
from ...flow.access import FromFunction, Later, RandomAccess, access
from ...flow.check import failed
from ...flow.combine.inner import failed_dataset
from ...flow.combine.read_ahead import calls_python
from ...flow.element import Element
from ...flow.run import Context, Flow
from ...flow.state.snapshot import State
from ...flow.step import Running
from ...graph.classify import name_of
from ...graph.trace import call_with, called_before
from ...plan.index import blocker, why_not
from ...plan.node import ElementType, Node
from ...plan.order import refuse_options
from ...spec import LEAF, Structure, TensorSpec, as_leaf
from ..pending import Learns, Pending
from .common_type import unknown

__all__ = ["DynamicInner", "StaticInner"]


@dataclass(frozen=True)
class StaticInner:
    """Opens the traced inner plan for an outer element."""

    flow: Flow
    python: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "python", calls_python(self.flow))

    def __call__(self, at: Context, outer: Element, state: State = None) -> Running:
        return self.flow.open(at.with_param(outer[0]), state)


class DynamicInner:
    """Calls the user's function for every outer element and opens the dataset it makes."""

    def __init__(self, node: Any, element: ElementType, lower: Callable[[Node, Node, Context], Pending]) -> None:
        self._node = node
        self._lower = lower
        self._structure = element.structure or LEAF
        self._element: ElementType | None = None
        self._called = self._lowered = self._python = False

    def __call__(self, at: Context, outer: Element, state: State = None) -> Running:
        return self._flow(at, self._plan(outer)).open(at, state)

    def access(self, at: Context, outer: Element) -> RandomAccess:
        """The elements of the dataset of an outer element, by index.

        Lowering a dataset may compute its first element. So one that says how many it has is lowered once it is asked
        for one of them, and only then is it noticed if its elements are of another type than those read before.

        Raises:
            PlanError: the dataset cannot be indexed, unlike the one that was made of a traced element.
            DataError: the function failed.
        """
        plan = self._plan(outer)
        step = blocker(plan)
        if step is not None:
            raise PlanError(
                f"{self._node.name} at {self._node.line} needs datasets whose steps can be indexed, and {why_not(step)}"
            )
        if plan.cardinality < 0:
            return access(self._flow(at, plan), at)

        def made() -> RandomAccess:
            try:
                return access(self._flow(at, plan), at)
            except DataError as error:  # so many elements failed: each of them has the error
                bad = failed_dataset(outer, error)
                return FromFunction(plan.cardinality, lambda index: bad)

        return Later(plan.cardinality, made)

    def _flow(self, at: Context, plan: Node) -> Flow:
        """The dataset of an outer element as a flow, whose elements are like those of the first one."""
        with called_before(self._lowered):
            pending = self._lower(self._node, plan, at)
        self._lowered = True
        self._python = self._python or calls_python(pending.flow)
        if unknown(pending.element) or plan.cardinality == 0:  # no elements: NumPy makes float64 of an empty list
            return pending.flow
        if self._element is None:
            self._element = pending.element
        elif pending.element.structure != self._element.structure:
            raise PlanTypeError(
                f"{self._node.name} needs datasets of one structure, got {pending.element.structure} after "
                f"{self._element.structure}, at {self._node.line}"
            )
        else:
            self._one_dtype(pending.element.specs, self._element.specs)
        return pending.flow

    def _plan(self, outer: Element) -> Node:
        """The plan of the dataset of an outer element."""
        with called_before(self._called):
            plan = self._made(outer)
        self._called = True
        return plan

    def _made(self, outer: Element) -> Node:
        name = self._node.name
        argument = self._structure.unflatten([as_leaf(column) for column in outer[0]])
        try:
            dataset = call_with(self._node.fn, argument)
        except PlanTypeError:
            raise
        except Exception as error:
            wrong = failed(name, error, outer[1], outer[2])
            # A folder or manifest that cannot be read: how many elements that costs is not known.
            raise wrong if isinstance(wrong, FunctionError) else wrong.hiding() from error
        plan = getattr(dataset, "plan", None)
        if not isinstance(plan, Node):
            raise PlanTypeError(
                f"{name} needs a function that returns a Dataset, got {type(dataset).__name__} from "
                f"{name_of(self._node.fn)}, at {self._node.line}"
            )
        refuse_options(name, plan)
        dataset._refuse_epoch(name)
        return plan

    @property
    def python(self) -> bool:
        """Whether the datasets call Python for each element; True only once the type of one of them is known."""
        return self._python and self._element is not None

    @property
    def peeks(self) -> bool:
        """Whether opening a dataset peeks at its first element, to compare its type with that of the first dataset."""
        return self.python

    def _one_dtype(self, found: Sequence[TensorSpec], first: Sequence[TensorSpec]) -> None:
        for a, b in zip(found, first, strict=True):
            if a.dtype is not None and b.dtype is not None and a.dtype != b.dtype:
                raise PlanTypeError(
                    f"{self._node.name} needs datasets of one dtype, got {a} after {b}, at {self._node.line}"
                )

    def learns(self) -> Learns:
        """How the element type of the datasets is learned from the first of them."""
        return Learns(self._seen_structure, self._expect, lambda: self._element is not None and self._element.batched)

    def _expect(self, element: ElementType) -> None:
        self._element = element

    def _seen_structure(self) -> Structure | None:
        return LEAF if self._element is None else self._element.structure
