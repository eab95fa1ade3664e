"""checks: finds mistakes in chains that are valid all the same. Pure functions of the plan.

Checks do not raise, warn or log: a finding may be what the author wants, and a chain runs many times.
`Dataset.check()` gives the findings and `explain()` shows them. A check reports only what is certain from the plan;
where a step hides what is below it (several inputs, a function that makes datasets at run time), it reports nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ...classes import dataclass
from ...errors import GpupipeError
from ...graph.host_values import is_image
from ...graph.values import Draw, topological
from ...options import Settings
from ...plan.batches import Batch, OfOneSize, PaddedBatch, Unbatch
from ...plan.cache import Cache
from ...plan.index import Select, Sliced
from ...plan.node import UNKNOWN_CARDINALITY, Node, walk
from ...plan.order import Prefetch, Repeat, Shard, Skip, Take
from ..lower.compile import lower_dry
from ..place.to_host import advice
from .check_functions import random_in_python, serial_python_map
from .check_images import (
    channels_first,
    classes_blended,
    images_moved_apart,
    normalize_of_another_range,
    scales_of_values,
    values_of_another_range,
)
from .check_shards import shard_of_batches, shard_over_urls, streams_of_all_ranks
from .check_shuffles import shuffle_holds_all, small_shuffle
from .check_zips import zip_of_random_ops, zip_of_shuffles

__all__ = ["CHECKS", "Finding", "check"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A mistake that a check found.

    Attributes:
        rule: the name of the check, e.g. ``"repeat_before_shuffle"``.
        line: ``file:line`` of the step to change.
        text: the consequence, and what to write instead.
    """

    rule: str
    line: str
    text: str

    def __str__(self) -> str:
        return f"{self.line}: {self.text}"


Above = tuple[Node, ...]
"""The steps between a node and the end of the chain, the nearest first."""


Check = Callable[[Node, Above], str | None]


def check(root: Node, settings: Settings) -> tuple[Finding, ...]:
    """The findings of a chain, inputs first, for each step in the order of `CHECKS`; then those of the device."""
    return (*_of_the_plan(root), *_of_the_device(root, settings))


def _of_the_device(root: Node, settings: Settings) -> Iterator[Finding]:
    """Find stages that cannot run on this machine, and results on a GPU that are copied to the host."""
    try:
        lowered = lower_dry(root, settings)
    except GpupipeError:
        return  # running or explaining the chain raises it
    for trouble, line in lowered.placer.troubles.items():
        yield Finding("cannot_run", line or root.line, f"the chain cannot run here: {trouble}")
    notes = [note for note in lowered.placer.notes if note.gpu is not None]
    copies = [note.to_host for note in notes if note.to_host is not None]
    for copy, text in advice(copies, stays=len(copies) < len(notes)):
        yield Finding("copied_to_host", copy.line, text)


def _of_the_plan(root: Node) -> tuple[Finding, ...]:
    users: dict[int, list[Node]] = {}
    order = walk(root)
    for node in order:
        for source in node.sources:
            users.setdefault(id(source), []).append(node)
    return tuple(
        Finding(rule.__name__, node.line, text)
        for node in order
        for rule in CHECKS
        if (text := rule(node, tuple(_above(node, users)))) is not None
    )


def _above(node: Node, users: dict[int, list[Node]]) -> Iterator[Node]:
    """The steps after a node, the nearest first, as long as each has one user."""
    while len(found := users.get(id(node), [])) == 1:
        node = found[0]
        yield node


def _below(node: Node) -> Iterator[Node]:
    """The steps before a node, the nearest first, as long as each has one input."""
    sources = node.sources
    while len(sources) == 1:
        (below,) = sources
        yield below
        sources = below.sources


def repeat_before_shuffle(node: Node, above: Above) -> str | None:
    """Find a shuffle after a repeat, which mixes passes."""
    if not node.shuffles:
        return None
    for below in _below(node):
        if isinstance(below, Repeat) and below.count not in (0, 1):
            return (
                f"{node.name} comes after the repeat at {below.line}: it mixes passes, so an element may come twice "
                "before another one comes once; write shuffle first, then repeat"
            )
    return None


def cache_after_shuffle(node: Node, above: Above) -> str | None:
    """Find a cache after a shuffle: it keeps the order of its first pass."""
    if not isinstance(node, Cache) or any(step.shuffles for step in above):
        return None
    for below in _below(node):
        if below.shuffles and below.draws:
            return (
                f"cache comes after the {below.name} at {below.line}: it keeps one order for every epoch; "
                "shuffle after the cache"
            )
    return None


def random_before_cache(node: Node, above: Above) -> str | None:
    """Find a cache after random ops: it keeps the results of its first pass."""
    if not isinstance(node, Cache):
        return None
    for below in _below(node):
        drawn = [value for value in topological(below.outputs) if isinstance(value, Draw) and value.site]
        if drawn:
            return (
                f"cache comes after the map at {below.line}, which calls {drawn[0].op.name}: it keeps the random "
                "results for every epoch; put random ops after the cache"
            )
    return None


def batch_before_shuffle(node: Node, above: Above) -> str | None:
    """Find a shuffle after a batch, which moves whole batches."""
    if not node.shuffles:
        return None
    for below in _below(node):
        if isinstance(below, Unbatch):
            return None
        if isinstance(below, (Batch, PaddedBatch)):
            return (
                f"{node.name} comes after the {below.name} at {below.line}: it moves whole batches, and the same "
                "elements stay together; shuffle before the batch"
            )
    return None


def split_of_a_shuffle(node: Node, above: Above) -> str | None:
    """Find a part taken after a shuffle whose order changes: it has different elements in every epoch."""
    if not _takes_a_part(node):
        return None
    for below in _below(node):
        if isinstance(below, (Repeat, Cache)):
            return None  # the first n of an endless stream are not a split; a cache keeps one order
        if below.shuffles and below.draws:
            return (
                f"{node.describe()} comes after the {below.name} at {below.line}, which changes its order: every epoch "
                "has different elements here, so a split made this way leaks; use split([...], seed=...), or shuffle "
                "with reshuffle_each_iteration=False"
            )
    return None


def _takes_a_part(node: Node) -> bool:
    if isinstance(node, Take):
        n = node.source.cardinality
        return node.count > 0 and not 0 <= n <= node.count
    if isinstance(node, Skip):
        return node.count > 0
    return isinstance(node, Select) and isinstance(node.order, Sliced)


def batch_of_too_few(node: Node, above: Above) -> str | None:
    """Find a batch that leaves out all that there is, as a rest."""
    if not isinstance(node, OfOneSize) or not node.drop or not 0 < node.source.cardinality < node.size:
        return None
    return (
        f"{node.describe()} gives nothing: there are {node.source.cardinality} elements, fewer than a batch; make it "
        "smaller, or leave drop_remainder out"
    )


def no_prefetch(node: Node, above: Above) -> str | None:
    """Find a chain that computes images and has no prefetch after them."""
    if not any(map(is_image, topological(node.outputs))) or any(isinstance(step, Prefetch) for step in above):
        return None
    if any(step.outputs or isinstance(step, Cache) or len(step.sources) > 1 for step in above):
        return None  # a later map has the finding; after a cache images are only read
    return (
        "the chain computes images and has no prefetch after them: end it with prefetch(gp.AUTOTUNE), so that the next "
        "batch is ready when it is needed"
    )


def uneven_shards(node: Node, above: Above) -> str | None:
    """Find shards that make different numbers of batches: their sizes may differ by one element."""
    if (
        not isinstance(node, Shard)
        or node.even is not None
        or not any(isinstance(a, (Batch, PaddedBatch)) for a in above)
    ):
        return None
    first, last = (_count(replace(node, index=index), above) for index in (0, node.shards - 1))
    if first == last or min(first, last) < 0:
        return None
    return (
        f"the shards of {node.source.cardinality} elements are uneven: the first one makes {first} steps and the last "
        f"one {last}, and ranks that train together wait for each other in every step; use "
        f"shard({node.shards}, {node.index}, even='drop') or even='wrap'"
    )


def _count(node: Node, above: Above) -> int:
    """The number of elements that the steps above would yield on top of this node."""
    for step in above:
        if len(step.sources) != 1:
            return UNKNOWN_CARDINALITY
        node = step.with_sources((node,))
    return node.cardinality


CHECKS: tuple[Check, ...] = (
    repeat_before_shuffle,
    batch_before_shuffle,
    small_shuffle,
    shuffle_holds_all,
    cache_after_shuffle,
    random_before_cache,
    split_of_a_shuffle,
    normalize_of_another_range,
    values_of_another_range,
    scales_of_values,
    classes_blended,
    channels_first,
    images_moved_apart,
    serial_python_map,
    random_in_python,
    zip_of_shuffles,
    zip_of_random_ops,
    batch_of_too_few,
    uneven_shards,
    shard_of_batches,
    shard_over_urls,
    streams_of_all_ranks,
    no_prefetch,
)
"""Every check, in the order in which they run."""
