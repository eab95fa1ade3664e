"""scanning: the methods of `Dataset` that keep a state or a count, and those that run a chain at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..arguments import checked_function, integer, integer_or_none, kept, signature
from ..errors import FunctionError, GpupipeError, PlanError, PlanTypeError, text_of
from ..graph.trace import require_no_symbols
from ..plan.maps import AssertCardinality, IgnoreErrors, PadToCardinality, RejectionResample, Scan, TakeWhile, Unique
from ..plan.node import INFINITE, UNKNOWN_CARDINALITY
from ..plan.order import never_ends
from ..ragged import RaggedSpec
from ..spec import Structure, TensorSpec, as_leaf, flatten, map_structure, spec_of
from .base import Chain, check_integer

if TYPE_CHECKING:
    from .. import Dataset

__all__ = ["Scanning"]


class Scanning(Chain):
    """Steps that keep a state or a count, and methods that run a chain at once."""

    def take_while(self, predicate: Callable[..., Any]) -> Dataset:
        """Keep the elements before the first one for which `predicate` is not True.

        Args:
            predicate: returns one boolean; a top-level tuple is unpacked into arguments.

        Raises:
            PlanError: the predicate is known to return something other than one boolean.
        """
        return self._then(TakeWhile(self.plan, predicate, self._predicate("take_while", predicate)))

    def scan(self, initial_state: Any, scan_func: Callable[[Any, Any], Any], *, spec: Any = None) -> Dataset:
        """Scan the elements with a state: ``scan_func(state, element)`` returns (new state, output).

        The function is ordinary Python, called for one element after the other; tuples are not unpacked. Every pass and
        every iterator starts with the initial state. Where the function raises, the state does not change.

        Args:
            initial_state: a structure of arrays, numbers or bytes. Lists are arrays.
            scan_func: the new state has the structure and dtypes of the initial one; shapes may change.
            spec: the outputs, a structure of `TensorSpec`; checked. By default the first output decides.

        Raises:
            PlanTypeError: at the first element: the function does not return a pair, or a state of another dtype.
            PlanError: at the first element: the function returns a state of another structure.

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
        """Run the chain now: ``state = reduce_func(state, element)`` for every element; return the last state.

        This counts as an epoch. Elements are on the host, nested datasets as they are; tuples are not unpacked. The
        result of an empty dataset is the initial state.

        Args:
            initial_state: a structure of arrays, numbers or bytes. Lists are arrays.
            reduce_func: returns a state of the same structure and dtypes; shapes may change. A top-level list stands
                for a tuple.

        Returns:
            The state: arrays, NumPy scalars and bytes.

        Raises:
            PlanTypeError: a state of another dtype.
            PlanError: a state of another structure.
            DataError: an element failed and `on_error` does not leave it out, or the function raised.

        Example:
            >>> from gpupipe import Dataset
            >>> int(Dataset.range(5).reduce(0, lambda total, x: total + x))
            10
        """
        checked_function("reduce", reduce_func)
        state, structure = _state("reduce", initial_state)
        specs = tuple(map(spec_of, state))
        from ..flow.maps.scan import next_state
        from ..load.converted import ConvertedIterator, on_host

        convert = partial(map_structure, on_host)
        state = [leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in state]
        chain = cast("Dataset", self)
        with ConvertedIterator(self.plan, chain.options().resolve(), chain._numbered("reduce"), convert) as items:
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
        """Keep the first occurrence of each value: numbers, byte strings, and arrays, which are compared as a whole.

        All values seen are kept in memory: a number itself, 16 bytes for an array.

        Raises:
            PlanError: elements of several components.
        """
        structure = self.plan.element.structure
        if structure is not None and structure.count != 1:
            raise PlanError(f"unique needs elements of one component, got {structure}")
        return self._then(Unique(self.plan))

    def ignore_errors(self, log_warning: bool = False) -> Dataset:
        """Leave out the elements that failed before this step.

        Before `batch` that is one element, and the batch is filled from what follows; after `batch` it is the whole
        batch. Elements left out are counted (`left_out` of the iterator), listed (`errors`) and logged: the first of
        each file, of other sources the first ten, then the 100th, 1,000th and so on. Errors of later steps are raised,
        or treated as `Options.on_error` says. The rest of a file that cannot be read to its end is left out, too, as by
        ``lost_files="skip"``, and always logged.

        Args:
            log_warning: log every one.
        """
        return self._then(IgnoreErrors(self.plan, bool(log_warning)))

    def assert_cardinality(self, expected_cardinality: int) -> Dataset:
        """Declare the number of elements where you know it and gpupipe does not; checked while running.

        Args:
            expected_cardinality: the number, or `INFINITE_CARDINALITY`. More or fewer elements are a data error after
                the last one, whatever `Options.on_error` says. Under "skip" bad elements do not count, so the steps
                before this one are computed here; under "raise" and "replace" they count.

        Raises:
            PlanError: a negative number other than `INFINITE_CARDINALITY`.
        """
        count = integer("assert_cardinality", "expected_cardinality", expected_cardinality)
        if count < 0 and count != INFINITE:
            raise PlanError(f"assert_cardinality needs a number >= 0 or INFINITE_CARDINALITY, got {count}")
        return self._then(AssertCardinality(self.plan, count))

    def pad_to_cardinality(self, cardinality: int, mask_key: str = "valid") -> Dataset:
        """Append elements of zeros up to `cardinality` elements, so that all ranks evaluate the same number of batches.

        Elements are dicts; a boolean under `mask_key` is True for original elements, False for added ones. In those,
        byte strings and the rows of a `Ragged` are empty, and unknown dimensions are as large as in the last element.

        `Options.on_error` applies here: bad elements that are raised or skipped do not count, and zeros make up for
        them; under "replace" the last good element is repeated. Elements may still fail in later steps: there only
        "replace" keeps the number.

        Args:
            cardinality: the number of elements, >= 0.
            mask_key: the key of the boolean.

        Raises:
            PlanError: elements that are not dicts or have the key already, or a dataset known to be longer. One that
                turns out to be longer is a data error.
        """
        count = integer("pad_to_cardinality", "cardinality", cardinality, 0)
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
        """Run the chain now and return its only element. This counts as an epoch.

        Raises:
            PlanError: the dataset is empty, or has more than one element.
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

        It is the same in another process if the functions capture only plain values (numbers, strings, arrays).
        """
        return int.from_bytes(self.plan.fingerprint[:8], "little")

    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Sequence[float],
        initial_dist: Sequence[float] | None = None,
        seed: int | None = None,
    ) -> Dataset:
        """Drop elements at random so that their classes have the proportions of `target_dist`.

        Elements become (class, element). The probability to keep one is target / initial of its class, divided by the
        largest such ratio: equal distributions keep all. The draw depends on (seed, epoch, element).

        Args:
            class_func: returns the class of an element, an integer >= 0; a top-level tuple is unpacked into arguments.
                A function of parsed features runs before the images are decoded.
            target_dist: one number >= 0 per class, on any scale.
            initial_dist: the distribution of the input. By default it is estimated while running, starting from ten
                elements of each class.
            seed: distinguishes the draws of this step from another's; without seeds such steps draw differently, too.
                In inputs of a `zip` equal seeds draw equally for elements at equal positions of their sources.

        Raises:
            PlanError: distributions that do not fit each other, or a wanted class that the input does not have.
            PlanTypeError: a class that is not an integer.
        """
        checked_function("rejection_resample", class_func, self.plan.element)
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
        check_integer("rejection_resample", "class_func", class_func, graph)
        return self._then(RejectionResample(self.plan, class_func, graph, target, initial, seed))


def _state(who: str, given: Any) -> tuple[list[Any], Structure]:
    """The leaves and the structure of an initial state."""
    leaves, structure = flatten(given)
    if not leaves:
        raise PlanError(f"{who} needs an initial state, got {given!r}")
    return [as_leaf(leaf) for leaf in leaves], structure


def _distribution(name: str, given: Any) -> tuple[float, ...]:
    """Check a vector of shares, >= 0 and not all 0."""
    shares = np.asarray(given)
    if shares.dtype.kind not in "iuf":
        raise PlanTypeError(f"rejection_resample needs numbers for {name}, got {given!r}")
    if shares.ndim != 1 or not len(shares):
        raise PlanError(f"rejection_resample needs a vector for {name}, got {given!r}")
    values = tuple(float(share) for share in shares)
    if not all(math.isfinite(value) and value >= 0 for value in values) or not sum(values):
        raise PlanError(f"rejection_resample needs numbers >= 0 for {name}, and not all 0, got {given!r}")
    return values
