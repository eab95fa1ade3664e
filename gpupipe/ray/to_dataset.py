"""to_dataset: the elements of a chain as a dataset of Ray Data, from any element on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..arguments import integer
from ..dataset import Dataset
from ..errors import DataError, MissingDependencyError, PlanError
from ..on_ray.worker import Answer, Chain, Maker, part_of, received
from ..options import Options
from ..plan.index import blocker, why_not
from ..plan.node import ElementType
from ..plan.order import options_of
from ..plan.ranks import SKIPS, in_this_process, with_own_rows

__all__ = ["ray_data", "to_dataset"]


def ray_data(who: str) -> Any:
    """The module ray.data.

    Raises:
        MissingDependencyError: it, or what it needs, is not installed.
    """
    try:
        import ray.data
    except ImportError as error:
        raise MissingDependencyError(
            f"{who} needs Ray Data, which cannot be imported: {error}; pip install 'ray[data]'"
        ) from error
    return ray.data


def to_dataset(
    ds: Dataset, epochs: int, start: int = 0, *, workers: int = 2, segment: int = 4, num_cpus: float = 1
) -> Any:
    """Make a `ray.data.Dataset` of the elements of a chain that can be indexed, in their order.

    A batch of B rows becomes B rows of Ray Data; so ``iter_batches(batch_size=B)`` gives the batches of the loop where
    B divides the rows of every batch. Columns have the names of a dict's keys; a tuple's are ``"0"``, ``"1"``, ...; a
    single leaf is ``"item"``. A bad element is an error of Ray Data.

    Args:
        ds: the chain.
        epochs: how many, from epoch 0 on.
        start: elements (batches) of all epochs together that are left out: those that a run has had before it stopped.
        workers: actors that make elements.
        segment: consecutive elements that an actor makes at a time.
        num_cpus: CPUs of an actor.

    Raises:
        PlanError: a step cannot be indexed; ``on_error="skip"``; the chain has no end.
        MissingDependencyError: Ray Data is not installed.
    """
    epochs, start = integer("to_dataset", "epochs", epochs, 1), integer("to_dataset", "start", start, 0)
    workers, segment = integer("to_dataset", "workers", workers, 1), integer("to_dataset", "segment", segment, 1)
    plan = with_own_rows(in_this_process(ds.plan))
    step = blocker(plan)
    if step is not None:
        raise PlanError(f"to_dataset needs steps that can be indexed, and {why_not(step)}")
    if options_of(plan).on_error == "skip":
        raise PlanError(SKIPS.replace("by_rank", "to_dataset").replace("the ranks", "the workers"))
    data, size = ray_data("to_dataset"), len(ds)
    settings = ds.options().resolve()
    options = ds.with_options(Options(seed=settings.seed, device="cpu")).options()
    chain = Chain(plan, options, part_of(plan, options.resolve()))
    asked = [job for epoch in range(epochs) for job in _jobs(epoch, size, max(0, start - epoch * size), segment)]
    found = data.from_items(asked or [{"epoch": 0, "start": 0, "stop": 0}], override_num_blocks=max(1, len(asked)))
    found.context.execution_options.preserve_order = True
    return found.map_batches(
        _Segments, fn_constructor_args=(chain,), batch_size=1, concurrency=workers, num_cpus=num_cpus
    )


def _jobs(epoch: int, size: int, first: int, segment: int) -> Iterator[dict[str, int]]:
    while first < size:
        stop = min(size, (first // segment + 1) * segment)
        yield {"epoch": epoch, "start": first, "stop": stop}
        first = stop


class _Segments:
    """What runs in an actor of Ray Data."""

    def __init__(self, chain: Chain) -> None:
        self._maker = Maker(chain)

    def __call__(self, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for answer in self._maker.segment(int(job["epoch"][0]), int(job["start"][0]), int(job["stop"][0])):
            if isinstance(answer, str):
                raise PlanError(
                    f"to_dataset needs workers with the caller's files and functions, got one that {answer}"
                )
            yield _table(answer)


def _table(answer: Answer) -> dict[str, Any]:
    """The rows of an element by column."""
    columns = received(answer)[0]
    if type(columns) is not tuple:
        error: DataError = columns.error
        raise error
    found = zip(_names(answer.type), columns, strict=True)
    if answer.type.batched:
        return {name: np.asarray(column) for name, column in found}
    return {name: _one(column) for name, column in found}


def _one(column: Any) -> Any:
    """A column of one row."""
    if isinstance(column, bytes):  # NumPy would make text of fixed length of it
        rows = np.empty(1, object)
        rows[0] = column
        return rows
    return np.asarray(column)[None]


def _names(kind: ElementType) -> list[str]:
    """The names of the columns."""
    names = [] if kind.structure is None else kind.structure.leaf_names()
    return [name.replace("][", ".").strip("[].").replace("'", "") or "item" for name in names]
