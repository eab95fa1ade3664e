"""check_shards: shards and ranks that make or read what they leave out."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from ...extract.storage.patterns import is_url
from ...plan.batches import Batch, PaddedBatch
from ...plan.index import Everything, Select
from ...plan.node import Node, walk
from ...plan.order import Shard, options_of
from ...plan.ranks import ByRank
from ...plan.sources import Files
from ..rules.select_rules import makes_all_batches

__all__ = ["shard_of_batches", "shard_over_urls", "streams_of_all_ranks"]


def _below(node: Node) -> Iterator[Node]:
    """The steps before a node, the nearest first, as long as each has one input."""
    while len(node.sources) == 1:
        (node,) = node.sources
        yield node


def shard_of_batches(node: Node, above: tuple[Node, ...]) -> str | None:
    """Find a shard of batches that makes those of all shards."""
    if not isinstance(node, Shard):
        return None
    why = makes_all_batches(node, options_of((node, *above)[-1]).on_error or "raise")
    if not why:
        return None
    batch = next(below for below in _below(node) if isinstance(below, Batch | PaddedBatch))
    return (
        f"shard comes after the {batch.name} at {batch.line}, and {why}: every one of the {node.shards} ranks makes "
        f"all batches and keeps one in {node.shards}; write shard before the maps and the batch"
    )


def shard_over_urls(node: Node, above: tuple[Node, ...]) -> str | None:
    """Find a shard of the records of remote files: each rank reads all of them."""
    if not isinstance(node, Shard) or node.shards == 1:
        return None
    for below in _below(node):
        if below.facts.flattens and any(
            any(map(is_url, files.paths)) for files in walk(below) if isinstance(files, Files)
        ):
            return (
                f"shard comes after the {below.name} at {below.line} over URLs: every one of the {node.shards} ranks "
                f"reads the files of all; write shard({node.shards}, {node.index}) right behind list_files"
            )
    return None


def streams_of_all_ranks(node: Node, above: tuple[Node, ...]) -> str | None:
    """Find ranks that read the streams of others: the number of ranks does not divide that of streams.

    Elements come from the streams in turn, and a rank has every `shards`-th element: those of ``gcd(streams, shards)``
    of all `shards` shares.
    """
    if not isinstance(node, Shard | ByRank) or node.shards == 1:
        return None
    batches = isinstance(node, ByRank)
    for below in _below(node):
        if isinstance(below, Select) and isinstance(below.order, Everything):
            return _of_streams(node, below, below.order.streams)
        if not below.facts.keeps_rows or (isinstance(below, Batch | PaddedBatch) and not batches):
            return None
        batches = batches and not isinstance(below, Batch | PaddedBatch)
    return None


def _of_streams(node: Shard | ByRank, shuffle: Select, streams: int) -> str | None:
    if streams % node.shards == 0:
        return None
    shares = gcd(streams, node.shards)
    return (
        f"{node.name} has {node.shards} ranks, and the shuffle at {shuffle.line} has {streams} streams, which they do "
        f"not divide: every rank reads {streams // shares} streams, not {max(1, streams // node.shards)}; use a number "
        f"of streams that {node.shards} divides, say {-(-streams // node.shards) * node.shards}"
    )
