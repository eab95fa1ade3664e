"""assemble: the description of a transform stage, and the elements made of a group and the executor's results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...classes import dataclass
from ...errors import DataError, GpupipeError
from ...graph.host_values import HostValues, is_batchwise
from ...graph.values import Apply, Item, Value
from ...transform.array import copied, goes_to_gpu, run_array
from ...transform.program import Executor, Program
from ..bad.found import BATCHES, bad_element
from ..batching.batcher import Group
from ..batching.stack import mismatch, stack_rows
from ..element import BatchStream, Element, Replacement, element_keys, locate
from ..maps.host_program import HostProgram
from ..run import Context, Flow
from ..stall import SOMEWHERE, Where

__all__ = ["Assembler", "Stage", "failed_batch"]


@dataclass(frozen=True)
class Stage:
    """A graph on groups of elements.

    Attributes:
        source: the input, whose columns the graph reads.
        outputs: the values to deliver, one per leaf: image values come from the executor, others from the host.
        names: names of the leaves, for messages.
        how: "batch" stacks `size` elements, "rows" gives elements again, "unstack" works on the rows of batches.
        size: rows of a group.
        drop: whether a short last batch is dropped.
        aligned: whether these batches are zipped with something, see `Batcher`.
        ignores: whether and how failed elements are kept out of batches, see `Batcher`.
        executor: makes an executor for a program and a batch size; None if no output is an image value.
        load: imports what the executor needs, before the first rows are there.
        headers: for each decoder, the column that holds its image sizes.
        ready: how many finished groups may wait.
        label: name of the stage, for messages.
        where: its number and executor, and the line of its first op, for reports.
        to_device: copies a host array to where the images are; None leaves it on the host.
        to_host: whether results are copied to the host, for the host node that follows.
        program: the graph; None if no output is an image value.
        host: host work on the rows, if they are taken from batches.
        shares_memory: whether the executor decodes the images of a batch at the same time on the host, see `split`.
    """

    source: Flow
    outputs: tuple[Value, ...]
    names: tuple[str, ...]
    how: str
    size: int
    drop: bool = False
    aligned: bool = False
    ignores: bool | None = None
    executor: Callable[[Program, int], Executor] | None = None
    load: Callable[[], None] | None = None
    headers: tuple[tuple[tuple[Value, bool], int], ...] = ()
    ready: int = 1
    label: str = "batch"
    where: Where = SOMEWHERE
    to_device: Callable[[Any], Any] | None = None
    to_host: bool = False
    program: Program | None = None
    host: HostProgram | None = None
    shares_memory: bool = False


class Assembler:
    """Makes elements of a group and the executor's results."""

    def __init__(self, flow: Stage, at: Context) -> None:
        self.flow = flow
        self._seed = at.run.settings.seed
        self._epoch = at.epoch
        self._headers = dict(flow.headers)
        self._images = {value: i for i, value in enumerate(flow.program.outputs)} if flow.program else {}
        self._checked = [
            (image, name)
            for value, name in zip(flow.outputs, flow.names, strict=True)
            for image in _images_of(value)
            if image in self._images and None in (image.spec.shape or (None,))
        ]

    def values(self, rows: Sequence[Element]) -> HostValues:
        """Compute the host values of some elements."""
        columns = list(zip(*[row[0] for row in rows], strict=True))

        def keys(index: int) -> Any:
            if index < 0:
                return element_keys([row[1] for row in rows], [row[2] for row in rows])
            return element_keys([stream for stream, _ in columns[index]], [position for _, position in columns[index]])

        def headers(decode: Value) -> Any:
            if not isinstance(decode, Apply):
                return None
            oriented = bool(getattr(decode.op, "exif_orientation", False))
            column = self._headers.get((decode.x[0], oriented))
            return None if column is None else np.array(columns[column], np.int32)

        return HostValues(len(rows), columns.__getitem__, keys, self._seed, self._epoch, headers)

    def check_shapes(self, values: HostValues, rows: Sequence[Element]) -> None:
        """Refuse a batch of images of different sizes before anything runs.

        Raises:
            ShapeError: the images differ in size; names two such elements.
        """
        for value, name in self._checked:
            sizes = values.sizes(value)
            odd = np.flatnonzero((sizes != sizes[0]).any(axis=1))
            if len(odd):
                raise mismatch(name, sizes[0].tolist(), sizes[odd[0]].tolist(), rows[0], rows[odd[0]], "batch")

    def compute(self, values: HostValues) -> None:
        """Compute the leaves of the host, so that rows for which that fails are known before anything runs.

        Raises:
            DataError: names the rows.
        """
        for value in self.flow.outputs:
            if values.size and value not in self._images and not is_batchwise(value):
                values.rows(value)

    def batch(self, group: Group, values: HostValues | None, results: Sequence[Any]) -> Element:
        """Make one element, with every leaf stacked."""
        rows = group.rows
        values = values or self.values(rows)
        leaves = []
        given: set[Value] = set()  # a value that is two leaves becomes two arrays: the user may change one of them
        calls: dict[Apply, tuple[Any, ...]] = {}
        for value, name in zip(self.flow.outputs, self.flow.names, strict=True):
            leaf = self._column(value, name, rows, values, results, calls)
            if value in self._images or is_batchwise(value):
                if value in given and hasattr(leaf, "copy"):
                    leaf = copied(leaf)
                given.add(value)
            if self.flow.to_device is not None and goes_to_gpu(leaf):
                leaf = self.flow.to_device(leaf)
            leaves.append(leaf)
        whole = group.whole
        if whole is not None and len(rows) == len(whole[0][0]) and not any(type(row[1]) is Replacement for row in rows):
            return tuple(leaves), whole[1], whole[2]
        return tuple(leaves), BatchStream.of(rows), rows[0][2]

    def _column(
        self,
        value: Value,
        name: str,
        rows: Sequence[Element],
        values: HostValues,
        results: Sequence[Any],
        calls: dict[Apply, tuple[Any, ...]],
    ) -> Any:
        """Return a value of all rows as one array: of the executor, of the host, or of array code on such arrays."""
        image = self._images.get(value)
        if image is not None:
            leaf = results[image]
            if isinstance(leaf, list):
                shapes = [np.shape(row) for row in leaf]
                odd = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
                if odd is None:
                    raise GpupipeError(
                        f"the executor must give one batch, got {len(leaf)} separate rows of shape {list(shapes[0])}"
                    )
                raise mismatch(name, shapes[0], shapes[odd], rows[0], rows[odd], "batch")
            return leaf
        if not is_batchwise(value):
            return stack_rows(values.rows(value), rows, name)
        call, index = (value.value, value.index) if isinstance(value, Item) else (value, 0)
        assert isinstance(call, Apply)
        if call not in calls:
            xs = [self._column(x, name, rows, values, results, calls) for x in call.x]
            calls[call] = run_array(call.op, xs, [values.rows(param)[0] for param in call.params])
        return calls[call][index]

    def elements(self, group: Group, values: HostValues | None, results: Sequence[Any]) -> list[Element]:
        """Make elements of the rows again, in their order, with the holes between them."""
        rows, order = group.rows, group.order or []
        made: list[Element] = []
        if rows:
            values = values or self.values(rows)
            columns = []
            for value in self.flow.outputs:
                image = self._images.get(value)
                columns.append(values.rows(value) if image is None else [self._own(row) for row in results[image]])
            made = [(row, *rows[i][1:]) for i, row in enumerate(zip(*columns, strict=True))]
        return [made[item] if isinstance(item, int) else item for item in order]

    @staticmethod
    def _own(row: Any) -> Any:
        """Return the row, copied on the host if it would keep its whole batch in memory."""
        return row.copy() if isinstance(row, np.ndarray) and row.base is not None else row

    def deliver(self, group: Group, values: HostValues | None, results: Sequence[Any]) -> list[Element]:
        """Make the elements of a group: its batch, or its rows."""
        if group.order is not None:
            return self.elements(group, values, results)
        try:
            return [self.batch(group, values, results)]
        except DataError as error:
            return [failed_batch(group, error)]


def _images_of(value: Value) -> list[Value]:
    """List the values an executor gives for a leaf: the leaf itself, or the inputs of its array code."""
    if not is_batchwise(value):
        return [value]
    call = value.value if isinstance(value, Item) else value
    assert isinstance(call, Apply)
    return [image for x in call.x for image in _images_of(x)]


def failed_batch(group: Group, error: DataError) -> Element:
    """Make the hole that stands for a batch which could not be made."""
    first = group.whole or group.rows[0]
    stream = first[1] if group.whole else BatchStream.of(group.rows)
    return bad_element(locate(error, first[1], first[2], "batch"), stream, first[2], BATCHES)
