"""converted: iterators that convert every leaf of their elements: to host memory, to tensors of a framework."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..errors import PlanTypeError
from ..optimize.lower.length import is_known, length
from ..options import Settings
from ..plan.node import Node
from ..plan.order import never_ends
from ..spec import Compound, DatasetSpec, map_structure
from ..transform.array import to_host
from .iterator import DatasetIterator
from .mark import Mark
from .progress import Numbers

__all__ = ["ConvertedIterator", "arrays_of", "on_host", "refusal"]


class ConvertedIterator(DatasetIterator):
    """An iterator that gives elements with every leaf converted; states are those of an iterator that does not.

    An element whose conversion fails, for example because a GPU has too little memory, is not lost: `next` raises, and
    the next call gives it again.

    Args:
        plan: the chain.
        settings: its options.
        epochs: the numbers of the epochs.
        convert: a function of one element; it may be given what it made itself.
    """

    def __init__(self, plan: Node, settings: Settings, epochs: Numbers, convert: Callable[[Any], Any]) -> None:
        super().__init__(plan, settings, epochs)
        self._convert = convert

    def _next(self) -> Any:
        return self._convert(super()._next())

    @property
    def continues(self) -> bool:
        """Whether a state was loaded, and nothing was asked for since."""
        return self._run is None and self._loaded_at >= 0

    def may_be_over(self) -> bool:
        """Whether a loaded state may be at the end of its epoch: all elements have come, or their number is unknown.

        Raises:
            LengthError: a file that has to be counted cannot be read to its end.
        """
        progress, rest = self._progress, self._plan
        if never_ends(rest):
            return False
        policy = self._settings.on_error
        fewer = policy == "skip" or (policy == "raise" and progress.noted)  # rows that were bad are not in batches
        known = is_known(rest) and not fewer
        given = progress.in_epoch + progress.raised - progress.first  # of the rest
        return not known or given >= length(rest, self._settings)

    def leave_rest(self) -> None:
        """Start with the epoch after that of the loaded state, as if the state were of its end."""
        with self._lock:
            self._schedule.load(self._progress, True)
            self._plan, self._mark = self._chain.plan, Mark(None, self._progress.delivered)

    def was_look(self, elements: int) -> bool:
        """Note whether it started, gave at most so many elements of its epoch, and did not come to the end."""
        progress = self._progress
        progress.look = progress.epoch is not None and not progress.ended and progress.in_epoch <= elements
        return progress.look


def on_host(leaf: Any) -> Any:
    """Return a leaf in host memory; a `Compound`, such as a nested dataset, as it is."""
    if isinstance(leaf, Compound):
        return leaf
    return to_host(leaf)


def arrays_of(who: str, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A conversion of elements that refuses nested datasets.

    Args:
        who: the method that is asked for arrays.
        convert: a function of any other leaf, also of a `Ragged` one.
    """
    return partial(map_structure, partial(_array_of, who, convert))


def _array_of(who: str, convert: Callable[[Any], Any], leaf: Any) -> Any:
    if isinstance(leaf, Compound) and isinstance(spec := leaf.leaf_spec(), DatasetSpec):
        raise refusal(who, spec)
    return convert(leaf)


def refusal(who: str, spec: DatasetSpec) -> PlanTypeError:
    """The error for a dataset where arrays are needed."""
    return PlanTypeError(
        f"{who} needs arrays, numbers or bytes, got a {spec}; iterate over the dataset itself, or "
        "flat_map(lambda w: w.batch(n)) first"
    )
