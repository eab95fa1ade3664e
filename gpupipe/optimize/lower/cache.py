"""cache: the lowering of caches, in memory and in files."""

from __future__ import annotations

from ...errors import MissingFileError
from ...flow.cache.fill import CacheFlow
from ...plan.arrival import any_order
from ...plan.cache import Cache, FileCache, GpuCache
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


def gpu_cache(lowerer: Lowerer, node: GpuCache, *given: Pending) -> Pending:
    """As `cache`, and images stay on the GPU, on the way into the cache as well as out of it."""
    placer, store = lowerer.placer, node.store
    where = placer.gpu_memory(node)
    found = store.find(lowerer.settings)
    if found is not None:
        flow = CacheFlow(None, store, found.element)
        return Pending.columns_of(flow, found.element, (f"full cache {where}",), references=True)
    source = placer.place(given[0], label=node.name, keeps=True)
    flow = CacheFlow(source.flow, store, source.element)
    steps = (*source.steps, f"cache {where}")
    return Pending.columns_of(flow, source.element, steps, references=True)


CACHES: dict[type[Node], Lowering] = {Cache: cache, FileCache: cache, GpuCache: gpu_cache}
