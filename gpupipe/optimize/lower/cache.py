"""cache: the lowering of caches, in memory and in files."""

from __future__ import annotations

from ...errors import MissingFileError
from ...flow.cache.fill import CacheFlow
from ...plan.arrival import any_order
from ...plan.cache import Cache, FileCache
from ...plan.node import Node
from ..pending import Pending
from .lowerer import Lowerer, Lowering

__all__ = ["CACHES"]


def cache(lowerer: Lowerer, node: Cache, *given: Pending) -> Pending:
    """Give the elements of a full cache, else those of the input, which fill it."""
    store, settings = node.store, lowerer.settings
    where = store.file(settings) if isinstance(node, FileCache) else "memory"
    mixed = any_order(node.source, settings.deterministic) is not None
    found = store.find(settings)
    if found is not None:
        flow = CacheFlow(None, store, found.element, mixed)
        return Pending.columns_of(flow, found.element, (f"full {node.name} in {where}",))
    if not given:
        raise MissingFileError("the file was there a moment ago; start again", file=where, stage=node.name)
    source = lowerer.placed(node, given[0])
    flow = CacheFlow(source.flow, store, source.element, mixed)
    return source.then(flow, f"{node.name} in {where}", source.element)


CACHES: dict[type[Node], Lowering] = {Cache: cache, FileCache: cache}
