"""material: the images of a chain after every op, computed by any executor from the same batches and parameters.

The chain runs once with its inputs recorded. What an op draws is among the inputs of its stage, so a part of the
stage's program sees the same crops and flips as the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import copy_context
from typing import Any

import numpy as np
import numpy.typing as npt

from ...classes import dataclass
from ...dataset import Dataset
from ...errors import DataError
from ...flow.stage.repair import host_copy
from ...graph.host_values import header_size
from ...graph.values import Apply, Input, Item, Value
from ...options import Options, Settings
from ...transform.choose import make_executor, resolve_device, threads_of
from ...transform.program import BatchFailed, Feed, Program
from ...transform.recording import RECORDING, Fed, Recording
from ..rounds import iterator_of

__all__ = ["FUSIONS", "Material", "Rows", "alone", "calls_of", "material_of", "record", "results_of", "run", "unfused"]

FUSIONS = ("fuse_decode_crop", "fuse_decode_resize_crop", "fuse_resize_flip", "fuse_crop_mirror_normalize")
"""The rules that make one op of several, without which each step is seen by itself."""

Rows = Sequence[Any]

MOST_BYTES = 1 << 29
"""Of decoded images that are kept; each executor's come on top."""

_FED = 1 << 20
"""Number of the first column that stands for an image of the reference; no chain has as many."""


@dataclass(frozen=True, slots=True)
class Material:
    """The values of some elements at every place of a stage's program.

    Attributes:
        program: of the stage.
        rows: for each input of the program and each value inside, one entry for each element.
        size: how many elements.
    """

    program: Program
    rows: dict[Value, Rows]
    size: int


def record(dataset: Dataset, rows: int) -> list[Fed]:
    """Run a chain until `rows` rows are delivered; return what its stages were fed, empty if it has no images."""
    return copy_context().run(_recorded, dataset, rows)


def _recorded(dataset: Dataset, rows: int) -> list[Fed]:
    recording = Recording(rows)
    RECORDING.set(recording)
    with iterator_of(dataset) as items:
        for _ in items:
            if items.stats().rows >= rows:
                break
    return [fed for fed in recording.stages if fed.feeds]


def unfused(dataset: Dataset) -> Dataset:
    """The same chain with one op for each step."""
    already = dataset.options().disabled_rules or ()
    return dataset.with_options(Options(disabled_rules=(*already, *FUSIONS)))


def material_of(fed: Fed, rows: int, settings: Settings) -> Material:
    """Compute every value of a stage's program on the executor of `settings`."""
    values: dict[Value, list[Any]] = {value: [] for value in fed.program.inputs}
    rows, size = min(rows, _affordable(fed)), 0
    for feed in fed.feeds:
        part = feed.part(0, min(feed.size, rows - size))
        for value, given in zip(fed.program.inputs, part.values, strict=True):
            values[value].extend(given)
        size += part.size
        if size >= rows:
            break
    inside = [value for call in calls_of(fed.program) for value in results_of(call)]
    computed = run(inside, values, size, settings)
    return Material(fed.program, {**values, **dict(zip(inside, computed, strict=True))}, size)


def _affordable(fed: Fed) -> int:
    """How many rows may be kept, by the sizes of their decoded images; at least one."""
    room, rows = MOST_BYTES, 0
    encoded = [n for n, value in enumerate(fed.program.inputs) if any(call.x[0] is value for call in _decoders(fed))]
    for feed in fed.feeds:
        for row in range(feed.size):
            for n in encoded:
                height, width = header_size(feed.values[n][row], oriented=False, max_pixels=1 << 62)
                room -= height * width * 3
            if room < 0:
                return max(1, rows)
            rows += 1
    return rows


def _decoders(fed: Fed) -> list[Apply]:
    return [call for call in calls_of(fed.program) if call.op.decodes]


def calls_of(program: Program) -> list[Apply]:
    """The ops of a program, inputs before users."""
    return [value for value in program.values if isinstance(value, Apply)]


def results_of(call: Apply) -> list[Value]:
    """One value for each result of an op."""
    return [call] if len(call.specs) == 1 else [Item(call, index) for index in range(len(call.specs))]


def alone(call: Apply, material: Material, settings: Settings) -> list[Rows]:
    """The results of one op, from the images that the material has for its inputs."""
    inside = set(material.program.values)
    fed: dict[Value, Rows] = {value: material.rows[value] for value in material.program.inputs}
    xs: list[Value] = []
    for number, x in enumerate(call.x):
        if x in inside:
            column = Input(_FED + number, x.spec)
            fed[column] = material.rows[x]
            xs.append(column)
        else:
            xs.append(x)
    return run(results_of(Apply(call.op, tuple(xs), call.params, call.line)), fed, material.size, settings)


def run(outputs: Sequence[Value], given: Mapping[Value, Rows], size: int, settings: Settings) -> list[Rows]:
    """Compute values of some elements on the executor of `settings`.

    Raises:
        GpupipeError: the executor cannot run them.
    """
    program, choice = Program(tuple(outputs)), resolve_device(settings)
    executor = make_executor(choice, program, size, threads_of(choice, settings)[0], settings.decoding)
    try:
        executor.submit(Feed(size, tuple(_column(given[value]) for value in program.inputs)))
        return [_rows(host_copy(result)) for result in executor.collect()]
    except BatchFailed as failure:
        raise next(iter(failure.causes.values()), DataError(failure.text)) from failure
    finally:
        executor.close()


def _column(rows: Rows) -> Any:
    """Drawn parameters as one array, as a feed has them; images and bytes as a list."""
    if isinstance(rows[0], np.ndarray) and rows[0].ndim >= 2:
        return list(rows)
    if isinstance(rows[0], np.ndarray | np.generic):
        return np.asarray(rows)
    return list(rows)


def _rows(result: Any) -> list[npt.NDArray[Any]]:
    return [np.asarray(row) for row in result]
