"""job: groups on their way through the transform stage, and what is delivered of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...errors import DataError
from ...graph.host_values import BatchValues
from ...transform.program import Feed
from ..batching.batcher import Group
from ..batching.resumable import Point
from ..element import Element

__all__ = ["Finished", "Job", "Turn", "in_parts"]


@dataclass(slots=True)
class Job:
    """A formed group on its way: its host values, and how many parts the executor gets it in."""

    group: Group
    values: BatchValues
    feeds: list[Feed]
    error: DataError | None = None
    bad: dict[int, DataError] = field(default_factory=dict)


@dataclass(slots=True)
class Turn:
    """Something that the former gave, or a part of what became of it.

    Attributes:
        item: what is next to be delivered.
        before: where the former stood before it.
        after: where it stood behind it; None where more comes of the same.
    """

    item: Job | Element
    before: Point
    after: Point | None


@dataclass(frozen=True, slots=True)
class Finished:
    """Elements on their way to the user, with the places of a `Turn`."""

    elements: list[Element]
    before: Point
    after: Point | None


def in_parts(job: Job | Element) -> bool:
    """Whether a job is too large for one run."""
    return isinstance(job, Job) and len(job.feeds) > 1
