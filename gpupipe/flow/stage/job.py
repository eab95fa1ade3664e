"""job: groups on their way through the transform stage, and the elements delivered of them."""

from __future__ import annotations

from dataclasses import field

from ...classes import dataclass
from ...errors import DataError
from ...graph.host_values import HostValues
from ...transform.program import Feed
from ..batching.batcher import Group
from ..batching.resumable import Checkpoint
from ..element import Element

__all__ = ["Delivered", "Job", "Queued", "runs_alone"]


@dataclass(slots=True)
class Job:
    """A group on its way through the executor.

    Attributes:
        group: the rows.
        values: their host values.
        feeds: the parts in which the executor gets the group.
        error: why the host could not prepare it, if so.
        bad: errors of the rows that `error` names, by their index in the group.
    """

    group: Group
    values: HostValues
    feeds: list[Feed]
    error: DataError | None = None
    bad: dict[int, DataError] = field(default_factory=dict)


@dataclass(slots=True)
class Queued:
    """An item of the batcher, or a part of it after a repair.

    Attributes:
        item: a job, or an element to deliver as it is.
        before: checkpoint of the batcher before the item.
        after: checkpoint after it; None if more parts of the item follow.
    """

    item: Job | Element
    before: Checkpoint
    after: Checkpoint | None


@dataclass(frozen=True, slots=True)
class Delivered:
    """Elements on their way to the user, with the checkpoints of their `Queued`."""

    elements: list[Element]
    before: Checkpoint
    after: Checkpoint | None


def runs_alone(job: Job | Element) -> bool:
    """Whether nothing else may be in the executor with a job: it is too large for one run, or its images are large.

    What holds some of the budget of large images may not wait for the consumer of another batch.
    """
    return isinstance(job, Job) and (len(job.feeds) > 1 or any(feed.large for feed in job.feeds))
