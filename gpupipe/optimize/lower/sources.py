"""sources: the lowering of nodes without inputs, and of those that read the file that an outer element names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...classes import dataclass
from ...errors import PlanError
from ...extract.storage.names import Names
from ...flow.run import Flow
from ...flow.sources.arrays import FilesFlow, ItemsFlow, ParamFlow, RangeFlow, SlicesFlow
from ...plan.cache import Saved, SavedFiles
from ...plan.files import Csv, Entries, FarRecords, FixedRecords, Lines, Records, Samples, TableRows
from ...plan.node import Node
from ...plan.ranks import FromWorkers, OnRay
from ...plan.sources import (
    Counter,
    Files,
    FromGenerator,
    FromIndexable,
    Listed,
    Param,
    RandomNumbers,
    Range,
    Request,
    Slices,
    Tensors,
)
from ...plan.windows import NestedElements
from ...spec import LEAF
from ..pending import Learns, Pending
from .lowerer import Lowerer, Lowering
from .stall import where

__all__ = ["SOURCES", "plain"]


def plain(make: Callable[[Any], Flow]) -> Lowering:
    """The lowering of a source whose flow depends on its node alone."""

    def lower(lowerer: Lowerer, node: Node) -> Pending:
        return Pending.columns_of(make(node), node.element, (node.describe(),))

    return lower


def param(lowerer: Lowerer, node: Param) -> Pending:
    """Give the outer element; not a step that a user wrote, so without a line for `explain()`."""
    return Pending.columns_of(ParamFlow(), node.element)


def generator(lowerer: Lowerer, node: FromGenerator) -> Pending:
    """Call a Python generator."""
    from ...flow.sources.generator import GeneratorFlow

    structure = node.signature.structure
    flow = GeneratorFlow(node.generator, node.args, structure, node.signature.specs)
    return Pending.learning(node, flow, (node.describe(),), Learns.of(flow.learned, flow.seen))


def from_workers(lowerer: Lowerer, node: FromWorkers) -> Pending:
    """Ask the workers of an `on_ray`."""
    flow = node.step.engine.flow(node)
    return Pending.learning(node, flow, (node.describe(),), Learns(flow.structure, flow.expect, flow.batched))


def on_ray(lowerer: Lowerer, node: OnRay, source: Pending) -> Pending:
    """Refuse workers inside of a function: in the chain of a loop they are a source by now (`handed_to_workers`)."""
    raise PlanError(f"on_ray needs the chain of the loop, got a dataset inside a function, at {node.line}")


def from_indexable(lowerer: Lowerer, node: FromIndexable) -> Pending:
    """Call an object's `__getitem__` as a Python function of indices."""
    from ...flow.maps.python_function import PythonFunction
    from ...flow.maps.python_map import PythonMapFlow

    declared = node.signature
    result = None if declared.structure is None else (declared.structure, declared.specs)
    function = PythonFunction(_Item(node.items), LEAF, "from_indexable", result, site="from_indexable")
    calls, tuned = lowerer.number(node, node.calls, lowerer.settings.threads)
    flow = PythonMapFlow(ItemsFlow(node.count), function, calls, where=where(node), tuned=tuned)
    text = f"{node.describe()}{f' in {calls} threads' if calls else ''}"
    return Pending.learning(node, flow, (text,), Learns.of(function.learned, function.seen))


@dataclass(frozen=True)
class _Item:
    """A function that returns an item of an object."""

    items: Any

    def __call__(self, i: int) -> Any:
        return self.items[int(i)]


def records(lowerer: Lowerer, node: Records, source: Pending) -> Pending:
    """Read the records of a TFRecord file, or references to them."""
    from ...flow.sources.records import RecordsFlow

    held = lowerer.references(node) and not node.compression
    flow = RecordsFlow(source.flow, node.leaf, node.compression, held, lowerer.above.ahead, node.index)
    text = f"{node.describe()}{' as references (file, offset, length)' if held else ''}"
    return Pending.columns_of(flow, node.element, (text,), references=held)


def lines(lowerer: Lowerer, node: Lines, source: Pending) -> Pending:
    """Read the lines of a text file."""
    from ...flow.sources.readers import LinesFlow

    flow = LinesFlow(source.flow, node.leaf, node.compression, lowerer.above.ahead)
    return Pending.columns_of(flow, node.element, (node.describe(),))


def csv(lowerer: Lowerer, node: Csv, source: Pending) -> Pending:
    """Read the records of a CSV file."""
    from ...flow.sources.readers import CsvFlow

    flow = CsvFlow(source.flow, node.leaf, node.compression, node.layout, lowerer.above.ahead)
    return Pending.columns_of(flow, node.element, (node.describe(),))


def fixed_records(lowerer: Lowerer, node: FixedRecords, source: Pending) -> Pending:
    """Read a file of records of one length."""
    from ...flow.sources.readers import FixedRecordsFlow

    sizes = node.record, node.header, node.footer
    flow = FixedRecordsFlow(source.flow, node.leaf, *sizes, node.compression, lowerer.above.ahead)
    return Pending.columns_of(flow, node.element, (node.describe(),))


def samples(lowerer: Lowerer, node: Samples, source: Pending) -> Pending:
    """Read the samples of a tar archive, or the places of their payloads."""
    from ...flow.sources.samples import SamplesFlow

    held = lowerer.references(node) and node.by_index
    flow = SamplesFlow(source.flow, node.leaf, node.columns, node.compression, held, lowerer.above.ahead, node.index)
    text = f"{node.describe()}{' as references (file, offset, length)' if held else ''}"
    return Pending.columns_of(flow, node.element, (text,), references=held)


def entries(lowerer: Lowerer, node: Entries, source: Pending) -> Pending:
    """Read the entries of an LMDB database."""
    from ...flow.sources.entries import EntriesFlow

    flow = EntriesFlow(source.flow, node.leaf, lowerer.above.ahead)
    return Pending.columns_of(flow, node.element, (node.describe(),))


def table_rows(lowerer: Lowerer, node: TableRows, source: Pending) -> Pending:
    """Read the rows of a tabular file."""
    from ...flow.sources.rows import RowsFlow

    flow = RowsFlow(source.flow, node.leaf, node.format, node.names, node.type.specs, lowerer.above.ahead)
    return Pending.columns_of(flow, node.element, (node.describe(),))


def counter(node: Counter) -> Flow:
    """Count without end."""
    from ...flow.sources.numbers import CounterFlow

    return CounterFlow(node.start, node.step, node.dtype)


def random_numbers(node: RandomNumbers) -> Flow:
    """Draw numbers without end."""
    from ...flow.sources.numbers import RandomFlow

    return RandomFlow(node.seed, node.rerandomize)


def request(node: Request) -> Flow:
    """Give the element that is asked for."""
    from ...flow.sources.request import RequestFlow

    return RequestFlow()


def saved(node: Saved) -> Flow:
    """Read the elements that `save` wrote."""
    from ...flow.cache.saved import SavedFlow, Wanted

    return SavedFlow(node.paths, node.counts, Wanted(node.saved, node.run), node.compression, node.indexed)


def saved_files(node: SavedFiles) -> Flow:
    """Give a dataset for each file that `save` wrote."""
    from ...flow.cache.saved import SavedFilesFlow

    return SavedFilesFlow(node.files, node.make)


def nested_elements(node: NestedElements) -> Flow:
    """Give the elements of a window."""
    from ...flow.batching.windows import NestedElementsFlow

    return NestedElementsFlow(node.elements, node.base)


def far_records(node: FarRecords) -> Flow:
    """Read the records of a manifest."""
    from ...flow.sources.far_records import FarRecordsFlow

    return FarRecordsFlow(node.manifest)


SOURCES: dict[type[Node], Lowering] = {
    Param: param,
    Tensors: plain(lambda node: SlicesFlow(node.leaves, whole=True)),
    Slices: plain(lambda node: SlicesFlow(node.leaves, names=node.names)),
    Listed: plain(lambda node: SlicesFlow(node.columns, names=node.names)),
    Range: plain(lambda node: RangeFlow(range(node.start, node.stop, node.step), node.dtype)),
    Counter: plain(counter),
    Request: plain(request),
    RandomNumbers: plain(random_numbers),
    Files: plain(lambda node: FilesFlow(node.paths, Names(node.names))),
    Saved: plain(saved),
    SavedFiles: plain(saved_files),
    NestedElements: plain(nested_elements),
    FromGenerator: generator,
    FromIndexable: from_indexable,
    FromWorkers: from_workers,
    OnRay: on_ray,
    Records: records,
    FarRecords: plain(far_records),
    Lines: lines,
    Csv: csv,
    FixedRecords: fixed_records,
    Samples: samples,
    Entries: entries,
    TableRows: table_rows,
}
