"""check_zips: checks for inputs of a zip that draw independently, so that the parts of a pair do not match.

There are no findings for inputs that are known to be unrelated: they differ in size, one of them is numbers that are
counted or drawn, or they are the same dataset, as when partners are drawn for mixup or contrastive views.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from ...classes import dataclass
from ...graph.values import Draw, topological
from ...plan.cache import Saved, SavedFiles
from ...plan.files import OneFile
from ...plan.handed import HandedRows, HandedStream
from ...plan.index import Everything, Select
from ...plan.joins import Zip
from ...plan.maps import Map, RejectionResample
from ...plan.mixing import SampleFrom
from ...plan.node import Node, walk
from ...plan.order import Shuffle
from ...plan.sources import Files, FromGenerator, FromIndexable, Listed, Range, Slices

__all__ = ["zip_of_random_ops", "zip_of_shuffles"]

_DATA = (Slices, Files, FromGenerator, OneFile, FromIndexable, HandedRows, HandedStream, Listed, Saved, SavedFiles)
"""Sources whose elements may belong to those of another."""


@dataclass(frozen=True, slots=True)
class _Random:
    """A step of an input that draws.

    Attributes:
        node: the step.
        text: the step in words.
        source: the elements that it draws for.
        terms: equal for steps that draw the same in two inputs; None where no other step does.
    """

    node: Node
    text: str
    source: Node
    terms: Any

    def __str__(self) -> str:
        return f"{self.text} at {self.node.line}"


@dataclass(frozen=True, slots=True)
class _Input:
    """The steps that draw in one input of a zip, the first step first.

    Attributes:
        node: its last step.
        base: its source.
        orders: steps that decide the order of elements, or choose among them.
        draws: maps that draw for each element.
    """

    node: Node
    base: Node
    orders: tuple[_Random, ...]
    draws: tuple[_Random, ...]


def zip_of_shuffles(node: Node, above: tuple[Node, ...]) -> str | None:
    """Find inputs whose orders are drawn independently, so that the elements of a pair do not match."""
    if not isinstance(node, Zip):
        return None
    for one, other in _pairs(node):
        a, b = one.orders, other.orders
        if not a and not b:
            continue
        if one.node == other.node and _alike(a, b) and not one.draws and not any(map(_is_python, walk(one.node))):
            return (
                f"two inputs are the same dataset in the same order ({a[-1]}): every element is paired with itself; "
                "give the inputs different seeds, or none"
            )
        if bool(a) != bool(b):
            (shuffled, still) = (one, other) if a else (other, one)
            source = shuffled.orders[0].source
            if source == still.node or not 0 <= source.cardinality == _size(still):
                continue
            what = f"one input is in a random order ({shuffled.orders[-1]}) and another is not"
        elif _alike(a, b) or _unrelated(a[0].source, b[0].source):
            continue
        else:
            first, second = _first_apart(a, b)
            what = f"two inputs are in random orders of their own ({first}, and {second})"
        return (
            f"{what}: the parts of a pair do not belong together; zip first, then shuffle: "
            "Dataset.zip((a, b)).shuffle(n), or write equal seeds and buffer sizes into both inputs"
        )
    return None


def zip_of_random_ops(node: Node, above: tuple[Node, ...]) -> str | None:
    """Find inputs with random ops of their own: an image and its mask get different windows, whatever the seeds."""
    if not isinstance(node, Zip):
        return None
    for one, other in _pairs(node):
        a, b = one.draws, other.draws
        if not a or not b or _sizes_differ(a[0].source, b[0].source):
            continue
        named = any(x.terms is not None and x.terms == y.terms for x in a for y in b)
        if a[0].source == b[0].source and not named:
            continue
        seeds = ", although their seeds are equal" if named else ""
        return (
            f"two inputs have random ops of their own ({a[0]}, and {b[0]}), which draw independently{seeds}: if the "
            "parts of a pair belong together, zip first, then map one call over both, such as "
            "ops.random_crop((image, mask), size)"
        )
    return None


def _pairs(node: Zip) -> Iterator[tuple[_Input, _Input]]:
    """Every two inputs whose elements may belong together."""
    return combinations([one for one in _inputs(node) if _holds_data(one)], 2)


def _holds_data(one: _Input) -> bool:
    """Whether elements may belong to those of another input: numbers do only if a traced map with a draw reads them."""
    if isinstance(one.base, Range):
        return any(step.node.outputs for step in one.draws)
    return isinstance(one.base, _DATA)


def _inputs(root: Zip) -> list[_Input]:
    """The steps that draw in each input, without recursion: a zip inside an input counts by its first input."""
    done: dict[int, _Input] = {}
    for node in walk(root):
        below = [done[id(source)] for source in node.sources]
        if node is root:
            return below
        if isinstance(node, Zip):
            below = below[:1]
        base = below[0].base if below else node
        orders = tuple(step for one in below for step in one.orders)
        draws = tuple(step for one in below for step in one.draws)
        done[id(node)] = _Input(node, base, (*orders, *_orders_of(node, base)), (*draws, *_draws_of(node)))
    return []


def _orders_of(node: Node, base: Node) -> Iterator[_Random]:
    """The draws of a step that decide the order of elements, or choose among them."""
    match node:
        case Shuffle(source=source, size=size, seed=seed, reshuffle=reshuffle):
            whole = 0 <= node.cardinality <= size
            yield _random(node, source, seed, reshuffle, "a buffer", None if whole else size)
        case Select(source=source, order=Everything(seed=seed, reshuffle=reshuffle)):
            yield _random(node, source, seed, reshuffle, "all")
        case SampleFrom(seed=seed, weights=weights, rerandomize=rerandomize):
            yield _random(
                node, node.inputs[0], seed, rerandomize, "sample", weights, node.branch if seed is None else 0
            )
        case RejectionResample(source=source, seed=seed):
            yield _random(node, source, seed, True, "resample", _names(base))
        case Node(made=Node() as inner):
            for below in walk(inner):
                for step in _orders_of(below, inner):
                    terms = None if step.terms is None else (*step.terms, _names(base))
                    yield _Random(below, step.text, node.sources[0], terms)
        case _:
            return


def _random(node: Node, source: Node, seed: int | None, rerandomize: bool, *terms: Any) -> _Random:
    """A step that draws an order; without a seed, two inputs draw the same only if the order never changes."""
    listed = isinstance(source, Files) and source.line == node.line  # shuffled by `list_files` itself
    text = f"list_files(seed={seed})" if listed else node.describe()
    return _Random(node, text, source, (*terms, seed, rerandomize) if seed is not None or not rerandomize else None)


def _names(base: Node) -> Any:
    """A value that identifies the elements of a source."""
    return getattr(base, "names", None) or type(base).__name__


def _draws_of(node: Node) -> Iterator[_Random]:
    """The random ops of a map, and of maps in datasets that are made of elements."""
    match node:
        case Map(source=source, traced=None, rng=True):
            yield _Random(node, node.describe(), source, None)
        case Map(source=source, traced=traced) if traced is not None:
            for value in topological(traced.outputs):
                if isinstance(value, Draw) and value.site:
                    seeded = value.site if "@" in value.site else None
                    yield _Random(node, value.op.name, source, seeded)
        case Node(made=Node() as inner):
            for below in walk(inner):
                for step in _draws_of(below):
                    yield _Random(below, step.text, node.sources[0], step.terms)
        case _:
            return


def _is_python(node: Node) -> bool:
    """Whether a step is an ordinary function, which may draw numbers of its own."""
    return isinstance(node, Map) and node.traced is None


def _alike(a: tuple[_Random, ...], b: tuple[_Random, ...]) -> bool:
    return len(a) == len(b) and all(x.terms is not None and x.terms == y.terms for x, y in zip(a, b, strict=True))


def _first_apart(a: tuple[_Random, ...], b: tuple[_Random, ...]) -> tuple[_Random, _Random]:
    """The first two steps that draw differently; the last two where one input has more steps."""
    for x, y in zip(a, b, strict=False):
        if x.terms is None or x.terms != y.terms:
            return x, y
    return a[-1], b[-1]


def _unrelated(a: Node, b: Node) -> bool:
    return a == b or _sizes_differ(a, b)


def _sizes_differ(a: Node, b: Node) -> bool:
    return a.cardinality >= 0 and b.cardinality >= 0 and a.cardinality != b.cardinality


def _size(one: _Input) -> int:
    """The number of elements that an input has in one pass."""
    return one.base.cardinality if one.node.cardinality < 0 else one.node.cardinality
