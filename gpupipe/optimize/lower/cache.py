"""cache: the lowering of caches, in memory and in files."""

from __future__ import annotations

from ...errors import MissingFileError
from ...flow.cache.files import FileCacheStore
from ...flow.cache.fill import CacheFlow
from ...plan.arrival import any_order
from ...plan.cache import Cache, FileCache
from ...plan.node import Node
from ..pending import Pending
from .lowerer import Lowerer, Lowering

__all__ = ["CACHES"]


def cache(lowerer: Lowerer, node: Cache, *given: Pending) -> Pending:
    """The elements of the cache if it is full, else those of the input, which fill it."""
    if not given:
        element = node.store.find(lowerer.settings).element
        return Pending.columns_of(CacheFlow(None, node.store, element), element, ("a filled cache in memory",))
    source = lowerer.placed(node, given[0])
    return source.then(CacheFlow(source.flow, node.store, source.element), "cache in memory", source.element)


def file_cache(lowerer: Lowerer, node: FileCache, *given: Pending) -> Pending:
    """The elements of the file if there is one, else those of the input, which fill it."""
    store: FileCacheStore = node.store
    mixed = any_order(node.source, lowerer.settings.deterministic) is not None
    found = store.find(lowerer.settings)
    if found is not None:
        flow = CacheFlow(None, store, found.element, mixed)
        return Pending.columns_of(flow, found.element, (f"{node.method}: elements of {found.path}",))
    path = store.file(lowerer.settings)
    if not given:
        raise MissingFileError("the file was there a moment ago; start again", file=path, stage=node.method)
    source = lowerer.placed(node, given[0])
    flow = CacheFlow(source.flow, store, source.element, mixed)
    return source.then(flow, f"{node.method} in {path}", source.element)


CACHES: dict[type[Node], Lowering] = {Cache: cache, FileCache: file_cache}
