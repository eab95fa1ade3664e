"""scanning: the methods of a `Dataset`: small steps that keep a state or a count, and what runs a chain at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..arguments import arity, checked_function, integer, integer_or_none, kept, signature
from ..errors import FunctionError, GpupipeError, PlanError, PlanTypeError, text_of
from ..graph.classify import name_of
from ..graph.trace import require_no_symbols
from ..plan.maps import AssertCardinality, IgnoreErrors, PadToCardinality, RejectionResample, Scan, TakeWhile, Unique
from ..plan.node import INFINITE, UNKNOWN_CARDINALITY
from ..plan.order import never_ends
from ..ragged import RaggedSpec
from ..spec import Structure, TensorSpec, as_leaf, flatten, spec_of
from .base import Chain

if TYPE_CHECKING:
    from .. import Dataset

__all__ = ["Scanning"]


class Scanning(Chain):
    """The methods of a `Dataset`: small steps that keep a state or a count, and what runs a chain at once."""

    def take_while(self, predicate: Callable[..., Any]) -> Dataset:
        """Keep the elements before the first for which `predicate` is not True; it ends there for good.

        Args:
            predicate: returns one boolean; a top-level tuple is unpacked into arguments.

        Raises:
            PlanError: a predicate that returns something else, where that is known.
        """
        return self._then(TakeWhile(self.plan, predicate, self._predicate("take_while", predicate)))

    def scan(self, initial_state: Any, scan_func: Callable[[Any, Any], Any], *, spec: Any = None) -> Dataset:
        """Go through the elements with a state: ``scan_func(state, element)`` returns (new state, output).

        It is ordinary Python, called for one element after the other; tuples are not unpacked. Every pass and every
        iterator begins with the initial state. Where the function raises, the state stays what it was.

        Args:
            initial_state: a structure of arrays, numbers or bytes. Lists are arrays.
            scan_func: the new state has the structure and dtypes of the initial one; shapes may change.
            spec: what the outputs are, a structure of `TensorSpec`; checked. Unless given the first output decides.

        Raises:
            PlanTypeError: with the first element: the function returns no pair, or a state of another dtype.
            PlanError: with the first element: a state of another structure.

        Example:
            >>> from gpupipe import Dataset
            >>> sums = Dataset.range(4).scan(0, lambda total, x: (total + x, total + x))
            >>> [int(x) for x in sums]
            [0, 1, 3, 6]
        """
        checked_function("scan", scan_func)
        leaves, structure = _state("scan", initial_state)
        require_no_symbols("scan", (scan_func, leaves))
        result = None if spec is None else signature("scan", spec)
        return self._then(Scan(self.plan, tuple(map(kept, leaves)), structure, scan_func, result))

    def reduce(self, initial_state: Any, reduce_func: Callable[[Any, Any], Any]) -> Any:
        """Run the chain at once: ``state = reduce_func(state, element)`` for every element; return the last state.

        It counts as an epoch. Elements are on the host, nested datasets as they are; tuples are not unpacked. Without
        any element the initial state comes back.

        Args:
            initial_state: a structure of arrays, numbers or bytes. Lists are arrays.
            reduce_func: returns a state of the same structure and dtypes; shapes may change. A top-level list stands
                for a tuple.

        Returns:
            The state: arrays, NumPy scalars and bytes.

        Raises:
            PlanTypeError: a state of another dtype.
            PlanError: a state of another structure.
            DataError: an element that failed, unless `on_error` leaves it out, or the function raised.

        Example:
            >>> from gpupipe import Dataset
            >>> int(Dataset.range(5).reduce(0, lambda total, x: total + x))
            10
        """
        checked_function("reduce", reduce_func)
        state, structure = _state("reduce", initial_state)
        specs = tuple(map(spec_of, state))
        from ..flow.maps.scan import next_state
        from ..load.host_arrays import HostIterator

        state = [leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in state]
        chain = cast("Dataset", self)
        with HostIterator(self.plan, chain.options().resolve(), chain._numbered("reduce")) as items:
            for i, element in enumerate(items):
                try:
                    value = reduce_func(structure.unflatten(state), element)
                except GpupipeError:
                    raise
                except Exception as error:
                    raise FunctionError(f"raised {text_of(error)}, at element {i}", stage="reduce") from error
                state = next_state("reduce", value, structure, specs)
        return structure.unflatten(state)

    def unique(self) -> Dataset:
        """Keep the first occurrence of each value: of numbers and byte strings, and of arrays, compared as a whole.

        What was seen is remembered: the number itself, or 16 bytes of an array.

        Raises:
            PlanError: elements of several components.
        """
        structure = self.plan.element.structure
        if structure is not None and structure.count != 1:
            raise PlanError(f"unique needs elements of one component, got {structure}")
        return self._then(Unique(self.plan))

    def ignore_errors(self, log_warning: bool = False) -> Dataset:
        """Leave out the elements that failed before this step, and go on with the next.

        In front of `batch` that is one element, and the batch is filled from what follows; behind it, it is the whole
        batch. What is left out is counted (`left_out` of the iterator), listed (`errors`) and logged: the first ten,
        then every tenfold.
        Errors of the steps behind this one are raised, or treated as `Options.on_error` says. The rest of a file that
        cannot be read to its end is left out too, as by ``lost_files="skip"``, and always logged.

        Args:
            log_warning: log every one.
        """
        return self._then(IgnoreErrors(self.plan, bool(log_warning)))

    def assert_cardinality(self, expected_cardinality: int) -> Dataset:
        """Say how many elements there are, where that is known to you and not to gpupipe; checked while it runs.

        Args:
            expected_cardinality: how many, or `INFINITE_CARDINALITY`. More or fewer are a data error behind the last
                element, whatever `Options.on_error` says. Under "skip" bad elements do not count, so what is written
                before this step is computed here; one that is raised counts, and so does what is "replaced".
        """
        count = integer("assert_cardinality", "expected_cardinality", expected_cardinality)
        if count < 0 and count != INFINITE:
            raise PlanError(f"assert_cardinality needs a number >= 0 or INFINITE_CARDINALITY, got {count}")
        return self._then(AssertCardinality(self.plan, count))

    def pad_to_cardinality(self, cardinality: int, mask_key: str = "valid") -> Dataset:
        """Append elements of zeros until there are `cardinality`, so that all ranks evaluate equally many batches.

        Elements are dicts; a boolean under `mask_key` is True for those that were there, False for the others. Byte
        strings are empty in those, and so are the rows of a `Ragged`. A dimension that is not known is as large as in
        the last element.

        Bad elements leave here, by `Options.on_error`: one that is raised in its place or skipped does not count, and
        zeros fill up for it; under "replace" the last good element stands in. What is written behind this step can
        fail for itself: there only "replace" keeps the number.

        Args:
            cardinality: how many elements there are then.
            mask_key: where the boolean stands.

        Raises:
            PlanError: no dict, a dict that has the key, or a dataset known to be longer. One that turns out to be
                longer is a data error.
        """
        count = integer("pad_to_cardinality", "cardinality", cardinality)
        if count < 0:
            raise PlanError(f"pad_to_cardinality needs a cardinality >= 0, got {count}")
        known, element = self.plan.cardinality, self.plan.element
        if never_ends(self.plan):
            raise PlanError("pad_to_cardinality needs a finite dataset, got an infinite one; use take first")
        if known != UNKNOWN_CARDINALITY and known > count:
            raise PlanError(f"pad_to_cardinality needs at most {count} elements, got {known}")
        if element.structure is not None:
            if element.structure.kind is not dict:
                raise PlanError(f"pad_to_cardinality needs elements that are dicts, got {element.structure}")
            if mask_key in element.structure.keys:
                raise PlanError(
                    f"pad_to_cardinality needs elements without the key {mask_key!r}; choose another mask_key"
                )
            for spec in element.specs:
                if type(spec) not in (TensorSpec, RaggedSpec):
                    raise PlanTypeError(f"pad_to_cardinality needs arrays, numbers or bytes, got {spec}")
        return self._then(PadToCardinality(self.plan, count, mask_key))

    def get_single_element(self) -> Any:
        """Run the chain at once and return its one element. It counts as an epoch.

        Raises:
            PlanError: there is none, or more than one.
        """
        nothing = object()
        with cast("Dataset", self).iterator() as items:
            element = next(items, nothing)
            if element is nothing:
                raise PlanError("get_single_element needs a dataset of one element, got an empty one")
            if next(items, nothing) is not nothing:
                raise PlanError("get_single_element needs a dataset of one element, got more than one; use first()")
        return element

    def fingerprint(self) -> int:
        """A 64-bit number that is equal for equal chains: equal steps, parameters and functions.

        In another process it is the same where everything that the functions capture is plain (numbers, texts, arrays).
        """
        return int.from_bytes(self.plan.fingerprint[:8], "little")

    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Sequence[float],
        initial_dist: Sequence[float] | None = None,
        seed: int | None = None,
    ) -> Dataset:
        """Leave out elements at random so that their classes come in the proportions of `target_dist`.

        Elements become (class, element). Each is kept with the probability target / initial of its class, over the
        largest of these: equal distributions keep all. Whether it is kept depends on (seed, epoch, element).

        Args:
            class_func: the class of an element, an integer from 0; a top-level tuple is unpacked into arguments. One
                that looks at parsed features runs before decoding.
            target_dist: one number per class, >= 0.
            initial_dist: that of the input. Unless given it is estimated on the way, from ten elements of each class
                that count as seen, and those that came.
            seed: tells this step's draws from another's; such steps draw differently without one, too. In inputs of a
                `zip` equal ones draw equally for elements at equal places of their sources.

        Raises:
            PlanError: distributions that do not fit each other, or a wanted class that the input has not.
            PlanTypeError: a class that is no integer.
        """
        checked_function("rejection_resample", class_func)
        arity("rejection_resample", class_func, self.plan.element)
        seed = integer_or_none("rejection_resample", "seed", seed)
        target = _distribution("target_dist", target_dist)
        initial = None if initial_dist is None else _distribution("initial_dist", initial_dist)
        if initial is not None:
            if len(initial) != len(target):
                raise PlanError(
                    f"rejection_resample needs distributions of one length, got {len(target)} and {len(initial)}"
                )
            for c, (wanted, there) in enumerate(zip(target, initial, strict=True)):
                if wanted > 0 and there == 0:
                    raise PlanError(f"rejection_resample needs an input with class {c}, got initial_dist[{c}] = 0")
        graph = self._question("rejection_resample", class_func)
        if graph is not None:
            (spec, *rest) = [value.spec for value in graph.outputs]
            if rest or spec.shape != () or spec.dtype is bytes or spec.dtype.kind not in "iu":
                got = ", ".join(str(value.spec) for value in graph.outputs)
                raise PlanTypeError(
                    f"rejection_resample needs a class_func that returns one integer, got {got} from "
                    f"{name_of(class_func)}"
                )
        return self._then(RejectionResample(self.plan, class_func, graph, target, initial, seed))


def _state(who: str, given: Any) -> tuple[list[Any], Structure]:
    """The leaves and the structure of an initial state."""
    leaves, structure = flatten(given)
    if not leaves:
        raise PlanError(f"{who} needs an initial state, got {given!r}")
    return [as_leaf(leaf) for leaf in leaves], structure


def _distribution(name: str, given: Any) -> tuple[float, ...]:
    """A vector of shares, >= 0 and not all 0."""
    shares = np.asarray(given)
    if shares.dtype.kind not in "iuf":
        raise PlanTypeError(f"rejection_resample needs numbers for {name}, got {given!r}")
    if shares.ndim != 1 or not len(shares):
        raise PlanError(f"rejection_resample needs a vector for {name}, got {given!r}")
    values = tuple(float(share) for share in shares)
    if not all(math.isfinite(value) and value >= 0 for value in values) or not sum(values):
        raise PlanError(f"rejection_resample needs numbers >= 0 for {name}, and not all 0, got {given!r}")
    return values
