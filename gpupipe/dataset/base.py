"""base: a dataset without its methods: a plan, and the epochs of its loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..arguments import checked_function, in_the_order_of, reordered, same_structure
from ..brief import brief, cut
from ..errors import GpupipeError, PlanError, PlanTypeError
from ..graph.classify import name_of
from ..graph.difference import Difference
from ..graph.sites import users_frames
from ..graph.symbols import active_trace
from ..graph.trace import Traced, require_no_symbols, trace, trace_inner
from ..plan.difference import plan_difference
from ..plan.files import first_files
from ..plan.index import ENDLESS, Order, Select, blocker, why_not
from ..plan.node import ElementType, Node
from ..plan.order import never_ends, refuse_options
from ..plan.sources import Param
from ..spec import Compound, DatasetSpec, TensorSpec
from .epochs import EpochCounter, Visits

if TYPE_CHECKING:
    from .. import Dataset

__all__ = ["Chain", "alike", "check_integer", "new"]


def new(plan: Node) -> Dataset:
    """A dataset of a plan, with a count of epochs of its own."""
    return Chain._dataset_type(plan)


def alike(who: str, datasets: list[Dataset]) -> list[Dataset]:
    """Check that datasets have equal structures and dtypes; their dicts get the key order of the first."""
    found: list[Dataset] = []
    mine: ElementType | None = None
    for dataset in datasets:
        other = dataset.plan.element
        if other.structure is None:
            found.append(dataset)
            continue
        mine = mine or other
        if not same_structure(mine, other):
            raise PlanTypeError(f"{who} needs datasets of one structure, got {mine.structure} and {other.structure}")
        for a, b in zip(mine.specs, reordered(mine, other), strict=True):
            if a.dtype is not None and b.dtype is not None and a.dtype != b.dtype:
                raise PlanTypeError(f"{who} needs datasets of one dtype, got {a} and {b}")
        found.append(dataset if mine.structure == other.structure else dataset.map(in_the_order_of(mine)))
    return found


def check_integer(who: str, name: str, fn: Callable[..., Any], graph: Traced | None) -> None:
    """Check that a traced function returns one integer; one that is not traced is checked while running."""
    specs = [] if graph is None else [value.spec for value in graph.outputs]
    if specs[1:] or any(spec.shape != () or getattr(spec.dtype, "kind", None) not in ("i", "u") for spec in specs):
        got = ", ".join(map(str, specs))
        raise PlanTypeError(f"{who} needs a {name} that returns one integer, got {got} from {name_of(fn)}")


def _differ(first: Any, second: Any) -> Difference | None:
    """How two results of a function that should return datasets differ; None where another check decides."""
    if not isinstance(first, Chain) or first.plan.element.structure is None:  # such a dataset is made for each element
        return None
    if not isinstance(second, Chain):
        return Difference(f"a Dataset, then {type(second).__name__}", "")
    return plan_difference(first.plan, second.plan)


class Chain(Compound):
    """A plan. The methods of `Dataset` come in parts, one module each; this is the base of all parts.

    Class attributes:
        _dataset_type: `Dataset`, which is composed of the parts.
    """

    _dataset_type: ClassVar[type[Dataset]]

    def __init__(self, plan: Node, counter: EpochCounter | None = None, epoch: int | None = None) -> None:
        if not isinstance(plan, Node):
            raise PlanTypeError(
                f"Dataset needs a plan, got {type(plan).__name__}; call a constructor: "
                f"Dataset.from_tensor_slices(...), Dataset.from_generator(...) or another"
            )
        self.plan = plan
        self._counter = EpochCounter() if counter is None else counter
        self._epoch = epoch  # set only by the method `epoch`
        self._visits = Visits()

    def _then(self, plan: Node) -> Dataset:
        return self._dataset_type(plan, self._counter, self._epoch)

    def _joined(self, who: str, plan: Node, inputs: Sequence[Chain]) -> Dataset:
        """A dataset of several inputs, this one the first."""
        for dataset in inputs:
            dataset._refuse_epoch(who)
        return self._dataset_type(plan, EpochCounter.joined([dataset._counter for dataset in inputs]))

    def _refuse_epoch(self, who: str) -> None:
        """Refuse a dataset of a fixed epoch as part of another: the whole chain is in one epoch.

        Raises:
            PlanError: this dataset comes from `epoch(n)`.
        """
        if self._epoch is not None:
            raise PlanError(
                f"{who} needs datasets without a fixed epoch, got one of epoch({self._epoch}); put epoch() last"
            )

    def _select(self, who: str, order: Order, instead: str = "") -> Dataset:
        """The elements at some indices.

        Args:
            who: the method.
            order: says which.
            instead: the call that does the same for a finite chain that cannot be indexed.

        Raises:
            PlanError: a step cannot be indexed, or the chain is infinite.
        """
        step = blocker(self.plan)
        if step is not None:
            hint = f"; or write {instead}" if instead and not never_ends(self.plan) else ""
            raise PlanError(f"{who} needs steps that can be indexed, and {why_not(step)}{hint}")
        if never_ends(self.plan):
            raise PlanError(f"{who} needs a dataset that ends, got an infinite one; use it before repeat")
        if self.plan.cardinality >= ENDLESS:
            raise PlanError(f"{who} needs fewer than 2**62 elements, got {self.plan.cardinality}")
        return self._then(Select(self.plan, order))

    def _trace(self, who: str, fn: Callable[..., Any], force: bool | None = None) -> Traced | None:
        element = self.plan.element
        assert element.structure is not None
        outer = active_trace()
        try:
            return trace(
                fn,
                element.structure,
                element.rows(),
                batched=element.batched,
                random_calls=self.plan.random_calls,
                depth=0 if outer is None else outer.depth + 1,
                force=force,
                who=who,
            )
        except GpupipeError as error:
            raise error.with_traceback(users_frames(error)) from error.__cause__

    def _question(self, who: str, fn: Callable[..., Any]) -> Traced | None:
        """Trace a function of each element; None where it is ordinary Python."""
        graph = self._trace(who, fn) if self.plan.element.known and not self.plan.element.batched else None
        if graph is None:
            require_no_symbols(who, fn)
        return graph

    def _predicate(self, who: str, fn: Callable[..., Any]) -> Traced | None:
        """Trace a predicate; None where it is ordinary Python.

        Raises:
            PlanError: it is known to return something other than one boolean.
        """
        checked_function(who, fn, self.plan.element)
        graph = self._question(who, fn)
        if graph is not None and [value.spec for value in graph.outputs] != [TensorSpec((), bool)]:
            got = ", ".join(str(value.spec) for value in graph.outputs)
            raise PlanError(f"{who} needs a predicate that returns one boolean, got {got} from {name_of(fn)}")
        return graph

    def _inner(self, who: str, fn: Callable[..., Any]) -> Node | None:
        """Trace a function that returns datasets; None if it has to be called for each element."""
        element = self.plan.element
        checked_function(who, fn, element)
        if not element.known or element.structure is None or element.batched:
            require_no_symbols(who, fn)
            return None
        outer = active_trace()
        depth = 0 if outer is None else outer.depth + 1
        param = Param(element, depth, self.plan.random_calls, first_files(self.plan))
        random_calls = self.plan.random_calls
        try:
            result, failed = trace_inner(fn, element.structure, element.specs, param, depth, random_calls, _differ, who)
        except GpupipeError as error:
            raise error.with_traceback(users_frames(error)) from error.__cause__
        if isinstance(result, Chain):
            refuse_options(who, result.plan)
            result._refuse_epoch(who)
            return result.plan
        if failed:
            require_no_symbols(who, fn)
            return None
        raise PlanTypeError(
            f"{who} needs a function that returns a Dataset, got {type(result).__name__} from {name_of(fn)}"
        )

    def leaf_spec(self) -> DatasetSpec:
        """The spec of this dataset as a leaf of an element."""
        return DatasetSpec(self.plan.element.nested)

    def leaf_parts(self) -> tuple[Any, ...]:
        """The fingerprint of this chain, for that of a chain that holds it as a leaf."""
        return (self.plan.fingerprint,)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<Dataset {cut(self.plan.describe(), 400)}, element_spec={brief(self.plan.element.nested, 1500)}>"
