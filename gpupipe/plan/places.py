"""places: the indices that `pick` is given, where one that comes again is another draw."""

from __future__ import annotations

from dataclasses import field

import numpy as np
import numpy.typing as npt

from ..classes import dataclass
from .index import Asked, Places

__all__ = ["RedrawnAsked", "RedrawnPlaces", "visits_of"]


@dataclass(frozen=True, slots=True)
class RedrawnPlaces(Places):
    """Indices some of which come again, each time with the random numbers of another pass.

    Attributes:
        visits: int64[N], how often the index came before; read-only.
    """

    visits: npt.NDArray[np.int64] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "visits", visits_of(self.indices))

    @property
    def redraws(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class RedrawnAsked(Asked):
    """Indices that are asked for, where one that comes again has the random numbers of another pass each time."""

    @property
    def redraws(self) -> bool:
        return True


def visits_of(indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How often each index came before: int64[N], read-only."""
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    numbers = np.arange(len(indices))
    starts = np.maximum.accumulate(np.where(np.diff(ordered, prepend=-1) != 0, numbers, 0))
    visits = np.empty(len(indices), np.int64)
    visits[order] = numbers - starts
    visits.flags.writeable = False
    return visits
