"""check_shards: shards that make or read what they leave out."""

from __future__ import annotations

from collections.abc import Iterator

from ...extract.storage.patterns import is_url
from ...plan.batches import Batch, PaddedBatch
from ...plan.node import Node, walk
from ...plan.order import Shard, options_of
from ...plan.sources import Files
from ..rules.select_rules import makes_all_batches

__all__ = ["shard_of_batches", "shard_over_urls"]


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
