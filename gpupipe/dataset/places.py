"""places: what `pick` takes, as the plan has it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from ..brief import brief
from ..classes import dataclass
from ..errors import PlanError, PlanTypeError
from ..plan.index import ENDLESS, Asked, Places, length_of
from ..plan.places import RedrawnAsked, RedrawnPlaces
from .base import Chain

__all__ = ["BatchesOfPlaces", "batches_of", "places_of"]

_PLACES = "integers in a list, a range or an array, or from an iterator or a function"


@dataclass(frozen=True, slots=True)
class BatchesOfPlaces:
    """What a batch sampler gives: places in lists, each a batch.

    Attributes:
        places: of all batches in order, as `pick` takes them.
        size: rows of a batch; the last one may have fewer.
        sizes: rows of each batch, where others than the last differ; else None.
        count: the number of batches; negative if it is unknown.
    """

    places: Any
    size: int
    count: int
    sizes: tuple[int, ...] | None = None


def batches_of(places: Any) -> BatchesOfPlaces | None:
    """The batches, if that is what `pick` was given: lists of places, or an object with a `batch_size` that gives them.

    Raises:
        PlanError: a list has no place.
    """
    if isinstance(places, Sequence) and places and all(isinstance(one, (list, tuple)) for one in places):
        sizes, flat = tuple(map(len, places)), [place for one in places for place in one]
        if not all(sizes):
            raise PlanError(f"pick needs a place in each batch, got none in batch {sizes.index(0)}")
        same = set(sizes[:-1]) <= {sizes[0]} and sizes[-1] <= sizes[0]
        return BatchesOfPlaces(flat, max(sizes), len(places), None if same else sizes)
    size = getattr(places, "batch_size", None)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1 or not hasattr(places, "__iter__"):
        return None
    return BatchesOfPlaces(_Rows(places, size), size, length_of(places))


class _Rows:
    """The places of a batch sampler, one by one; told the epoch as the sampler is.

    Args:
        batches: the sampler.
        size: places of each batch.
    """

    def __init__(self, batches: Any, size: int) -> None:
        self.sampler, self._size = batches, size
        self.__name__ = type(batches).__name__

    def __iter__(self) -> Iterator[Any]:
        last, number = self._size, 0
        for batch in self.sampler:
            if last != self._size:
                raise self._wrong(number - 1, last)
            rows = [batch] if np.ndim(batch) == 0 else list(batch)
            last, number = len(rows), number + 1
            if not 0 < last <= self._size:
                raise self._wrong(number - 1, last)
            yield from rows

    def _wrong(self, number: int, found: int) -> PlanError:
        return PlanError(
            f"pick needs batches of the batch_size of {self.__name__}, {self._size}, but the last one, got {found} "
            f"places in batch {number}; give pick a list of lists for batches of many sizes"
        )


def places_of(places: Any, redraw: bool) -> Places | Asked:
    """The places of `pick`: checked and copied, or still to be asked for.

    Raises:
        PlanError: a negative one, or more dimensions than one.
        PlanTypeError: something other than integers.
    """
    if isinstance(places, (str, bytes, bytearray, memoryview, Set, Mapping, Chain)):
        raise PlanTypeError(f"pick needs {_PLACES}, got {type(places).__name__}")
    if not isinstance(places, Sequence) and not hasattr(places, "__array__"):
        if not isinstance(places, Iterable) and not callable(places):
            raise PlanTypeError(f"pick needs {_PLACES}, got {type(places).__name__}")
        return RedrawnAsked(places) if redraw else Asked(places)
    try:
        given = np.asarray(places if hasattr(places, "__array__") else list(places) or np.zeros(0, np.int64))
    except (ValueError, OverflowError, TypeError, RuntimeError) as error:  # the last two by tensors that no CPU holds
        raise PlanTypeError(f"pick needs integers, got {brief(places)}") from error
    if given.dtype.kind not in "iu":
        raise PlanTypeError(f"pick needs integers of one dtype, got {brief(places)} of dtype {given.dtype}")
    if given.ndim != 1:
        raise PlanError(f"pick needs places of shape (N,), got {given.shape}")
    if given.size and (int(given.min()) < 0 or int(given.max()) >= ENDLESS):
        wrong = given.min() if int(given.min()) < 0 else given.max()
        raise PlanError(f"pick needs places from 0 to 2**62 - 1, got {int(wrong)}")
    chosen = given.astype(np.int64)
    chosen.flags.writeable = False
    if redraw and (redrawn := RedrawnPlaces(chosen)).visits.any():
        return redrawn
    return Places(chosen)
