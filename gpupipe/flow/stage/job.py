"""job: groups on their way through the transform stage, and what is delivered of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...errors import DataError
from ...graph.host_values import HostValues
from ...transform.program import Feed
from ..batching.batcher import Group
from ..batching.resumable import Checkpoint
from ..element import Element

__all__ = ["Delivered", "Job", "Queued", "in_parts"]


@dataclass(slots=True)
class Job:
    """A formed group on its way: its host values, and how many parts the executor gets it in."""

    group: Group
    values: HostValues
    feeds: list[Feed]
    error: DataError | None = None
    bad: dict[int, DataError] = field(default_factory=dict)


@dataclass(slots=True)
class Queued:
    """Something that the batcher gave, or a part of what became of it.

    Attributes:
        item: what is next to be delivered.
        before: where the batcher stood before it.
        after: where it stood behind it; None where more comes of the same.
    """

    item: Job | Element
    before: Checkpoint
    after: Checkpoint | None


@dataclass(frozen=True, slots=True)
class Delivered:
    """Elements on their way to the user, with the places of a `Queued`."""

    elements: list[Element]
    before: Checkpoint
    after: Checkpoint | None


def in_parts(job: Job | Element) -> bool:
    """Whether a job is too large for one run."""
    return isinstance(job, Job) and len(job.feeds) > 1
