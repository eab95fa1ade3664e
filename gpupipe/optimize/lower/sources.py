"""sources: how text, fixed-length records, and elements kept in files are lowered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...flow.cache.files import FileStore
from ...flow.cache.fill import CacheFlow
from ...flow.cache.saved import SavedFilesFlow, SavedFlow
from ...flow.sources.readers import FixedRecordsFlow, LinesFlow
from ...plan.files import FileCache, FixedRecords, Lines, Saved, SavedFiles
from ...plan.order import arrival
from ..pending import Pending
from .registry import lowers

if TYPE_CHECKING:
    from .lowerer import Lowerer

__all__ = []


@lowers(Lines)
def lines(lowerer: Lowerer, node: Lines) -> Pending:
    """The lines of the file that the outer element names."""
    flow = LinesFlow(lowerer.done[id(node.source)].flow, node.leaf, node.compression, lowerer.ahead)
    return Pending.columns_of(flow, node.element, (node.describe(),))


@lowers(FixedRecords)
def fixed_records(lowerer: Lowerer, node: FixedRecords) -> Pending:
    """The records of the file that the outer element names."""
    flow = FixedRecordsFlow(
        lowerer.done[id(node.source)].flow,
        node.leaf,
        node.record,
        node.header,
        node.footer,
        node.compression,
        lowerer.ahead,
    )
    return Pending.columns_of(flow, node.element, (node.describe(),))


@lowers(FileCache)
def file_cache(lowerer: Lowerer, node: FileCache) -> Pending:
    """The elements of the file if there is one, else of the input, which fill it."""
    store: FileStore = node.store
    comes = arrival(node.source, lowerer.settings.deterministic)
    found = store.find(lowerer.settings)
    if found is not None:
        flow = CacheFlow(None, store, found.element, comes)
        return Pending.columns_of(flow, found.element, (f"{node.method}: elements of {found.path}",))
    if id(node.source) not in lowerer.done:  # there was a file when it was asked whether the input is needed
        lowerer.run(node.source)
    source = lowerer.placer.place(lowerer.done[id(node.source)], label=node.method)
    flow = CacheFlow(source.flow, store, source.element, comes)
    steps = (*source.steps, f"{node.method} in {store.file(lowerer.settings)}")
    return Pending.columns_of(flow, source.element, steps)


@lowers(Saved)
def saved(lowerer: Lowerer, node: Saved) -> Pending:
    """The elements of the files that were saved."""
    flow = SavedFlow(node.paths, node.compression)
    return Pending.columns_of(flow, node.element, (node.describe(),))


@lowers(SavedFiles)
def saved_files(lowerer: Lowerer, node: SavedFiles) -> Pending:
    """One dataset for each file."""
    return Pending.columns_of(SavedFilesFlow(node.files, node.make), node.element, (node.describe(),))
