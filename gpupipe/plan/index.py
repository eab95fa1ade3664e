"""index: steps that choose elements by index, and which chains can be indexed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..classes import dataclass
from ..errors import PlanError
from ..extract.shards.names import compression_of
from ..extract.storage.patterns import is_url
from .batches import Batch, PaddedBatch
from .cache import FileCache, Saved
from .files import Records, Samples, TableRows
from .node import INFINITE, UNKNOWN_CARDINALITY, Facts, Node, Step, walk
from .order import never_ends
from .sources import Files, FromGenerator

__all__ = [
    "ENDLESS",
    "Asked",
    "Everything",
    "Order",
    "Part",
    "Places",
    "Rows",
    "Select",
    "Share",
    "Sliced",
    "asked_of",
    "blocker",
    "has_batches",
    "length_of",
    "loses_batches",
    "redraws",
    "why_not",
]


ENDLESS = 1 << 62
"""The number of elements of an endless chain, where a number is needed. Every index is smaller."""


@dataclass(frozen=True, slots=True)
class Sliced:
    """Every `step`-th index from `start` on, at most `count` of them; a negative step goes backwards."""

    start: int = 0
    step: int = 1
    count: int | None = None

    def size(self, n: int) -> int:
        """The number of indices chosen from an input of `n`."""
        if self.step > 0:
            size = max(0, -(-(n - self.start) // self.step))
        else:
            size = self.start // -self.step + 1 if self.start < n else 0
        return size if self.count is None else min(size, self.count)

    def describe(self) -> str:
        """As a Python slice."""
        if self.count == 1:
            return f"[{self.start}]"
        stop = "" if self.count is None else self.start + self.count * self.step
        return f"[{self.start}:{stop}:{self.step}]"


@dataclass(frozen=True, slots=True)
class Everything:
    """All indices in a random order.

    Attributes:
        seed: of this node, mixed with the chain's.
        reshuffle: False gives the same order in every epoch and pass.
        streams: how many there are that elements come from in turn; 0 where every order is equally likely.
        window: elements of a stream that are shuffled together.
    """

    seed: int | None = None
    reshuffle: bool = True
    streams: int = 0
    window: int = 0

    def size(self, n: int) -> int:
        """The number of indices chosen from an input of `n`: all of them."""
        return n

    def describe(self) -> str:
        """The step as the user wrote it."""
        streams = f", streams={self.streams}, window={self.window}" if self.streams else ""
        same = "" if self.reshuffle else ", the same order every time"
        return f"shuffle(ALL, seed={self.seed}{streams}{same})"


@dataclass(frozen=True, slots=True)
class Part:
    """One of several parts of all indices; the same in every epoch, pass and run.

    Attributes:
        weights: of the parts, integers.
        part: the number of the part.
        seed: of the split; the chain's has no effect.
    """

    weights: tuple[int, ...]
    part: int
    seed: int = 0

    def sizes(self, n: int) -> list[int]:
        """The sizes of all parts, by largest remainder; the first of equal remainders wins."""
        total = sum(self.weights)
        sizes = [n * weight // total for weight in self.weights]
        order = sorted(range(len(sizes)), key=lambda i: (-(n * self.weights[i] % total), i))
        for i in order[: n - sum(sizes)]:
            sizes[i] += 1
        return sizes

    def size(self, n: int) -> int:
        """The number of indices in this part of an input of `n`."""
        return self.sizes(n)[self.part]

    def describe(self) -> str:
        """The part of the split."""
        fractions = ", ".join(f"{weight / sum(self.weights):g}" for weight in self.weights)
        return f"split([{fractions}], seed={self.seed})[{self.part}]"


@dataclass(frozen=True, slots=True)
class Places:
    """Indices as a user gives them, in any order, any of them as often as it is named.

    Attributes:
        indices: int64[N], each >= 0; read-only.
    """

    indices: npt.NDArray[np.int64]

    def size(self, n: int) -> int:
        """The number of indices, whatever the input has.

        Raises:
            PlanError: an input of `n` lacks one of them.
        """
        most = int(self.indices.max(initial=-1))
        if most >= n:
            raise PlanError(f"pick needs places from 0 to {n - 1}, got {most}")
        return len(self.indices)

    @property
    def redraws(self) -> bool:
        """Whether an index that comes again has other random numbers."""
        return False

    def describe(self) -> str:
        """The step, with the first indices."""
        shown = ", ".join(map(str, self.indices[:4].tolist()))
        return f"pick([{shown}{f', ... {len(self.indices)} in all' if len(self.indices) > 4 else ''}])"


@dataclass(frozen=True, slots=True)
class Asked:
    """Indices that are asked for one by one while the chain runs.

    Attributes:
        places: an iterator of integers, which serves one pass; or an iterable, or a function that returns one, which
            serve each pass anew.
        taken: one object for each pass that asked for the places of an iterator; the pass of the first object has them.
        count: how many there are, as the object's `len` says; negative if that is not known before they have come.
    """

    places: Any
    taken: list[object] = field(default_factory=list, compare=False)
    count: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", length_of(self.places))

    @property
    def once(self) -> bool:
        """Whether only one pass can have them."""
        return isinstance(self.places, Iterator)

    @property
    def redraws(self) -> bool:
        """Whether an index that comes again has other random numbers."""
        return False

    def size(self, n: int) -> int:
        """The number of indices, if it is known, whatever the input has."""
        return self.count

    def describe(self) -> str:
        """The step, with what gives the indices."""
        return f"pick({getattr(self.places, '__name__', None) or type(self.places).__name__})"


@dataclass(frozen=True, slots=True)
class Share:
    """The part of one of several ranks that take elements in turn: number `first + index`, then every `shards`-th.

    Attributes:
        shards: how many ranks there are.
        index: the rank.
        unit: elements in a round of all ranks, a multiple of `shards`.
        first: elements before the first round.
        pad: complete a last round that is short, with elements from the start again; else it is left out.
    """

    shards: int
    index: int
    unit: int
    first: int = 0
    pad: bool = False

    def size(self, n: int) -> int:
        """The number of indices of this rank in an input of `n`; equal for all ranks."""
        left = max(0, n - self.first)
        return (-(-left // self.unit) if self.pad else left // self.unit) * (self.unit // self.shards)

    def where(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The indices of this rank's elements, by their numbers; from the size of the input on they are padding."""
        return self.first + self.index + numbers * self.shards

    def describe(self) -> str:
        """The share."""
        return f"one element in {self.shards}, from {self.first + self.index} on"


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of batches chosen by another order, to be batched again. Only the last batch may be short.

    Attributes:
        order: of the batches.
        rows: per batch.
        drop: leave out a short last batch.
    """

    order: Sliced | Everything | Part | Places | Asked | Share
    rows: int
    drop: bool

    def size(self, n: int) -> int:
        """The number of rows that the chosen batches have."""
        batches = n // self.rows if self.drop else -(-n // self.rows)
        chosen = self.order.size(batches)
        if chosen < 0:
            return chosen
        last = -1
        if isinstance(self.order, Sliced):
            last = self.order.start + (chosen - 1) * self.order.step
        elif isinstance(self.order, Share):
            last = self.order.first + self.order.index + (chosen - 1) * self.order.shards
        short = self.rows - n % self.rows if n % self.rows and not self.drop and chosen and last == batches - 1 else 0
        return chosen * self.rows - short

    def describe(self) -> str:
        """The order of the batches."""
        return f"{self.order.describe()} in rows of batches of {self.rows}"


Order = Sliced | Everything | Part | Places | Asked | Share | Rows


def length_of(places: Any) -> int:
    """What the `len` of a sampler says; `UNKNOWN_CARDINALITY` if it has none."""
    try:
        return len(places)
    except (TypeError, NotImplementedError):  # samplers that cannot tell raise either
        return UNKNOWN_CARDINALITY


def asked_of(order: Order) -> Asked | None:
    """The indices that an order asks for while the chain runs, if it does."""
    inner = order.order if isinstance(order, Rows) else order
    return inner if isinstance(inner, Asked) else None


@dataclass(frozen=True, slots=True, eq=False)
class Select(Step):
    """Elements by index: a slice, a full shuffle, a part of a split, places that the user names."""

    facts = Facts(payload="holds", by_index=True, as_they_are=True)

    order: Order

    def _cardinality(self) -> int:
        n = self.source.cardinality
        if asked_of(self.order) is not None:
            return self.order.size(n)
        if n == INFINITE:
            size = self.order.size(ENDLESS)
            return INFINITE if size > ENDLESS >> 32 else size
        return n if n < 0 else self.order.size(n)

    @property
    def by_index(self) -> bool:
        return asked_of(self.order) is None

    @property
    def shuffles(self) -> bool:
        return isinstance(self.order, Everything)

    @property
    def draws(self) -> bool:
        order = self.order.order if isinstance(self.order, Rows) else self.order
        return isinstance(order, Everything) and order.reshuffle

    @property
    def name(self) -> str:
        names = {Sliced: "[...]", Everything: "shuffle", Part: "split"}
        return "pick" if isinstance(self.order, Places | Asked) else names.get(type(self.order), "select")

    @property
    def redraws(self) -> bool:
        """Whether an index may come again, with other random numbers."""
        order = self.order.order if isinstance(self.order, Rows) else self.order
        return isinstance(order, Places | Asked) and order.redraws

    def describe(self) -> str:
        return self.order.describe()


def redraws(root: Node) -> bool:
    """Whether a `pick` of a chain draws anew for a place that comes again."""
    return any(
        (isinstance(node, Select) and node.redraws) or (node.made is not None and redraws(node.made))
        for node in walk(root)
    )


def blocker(root: Node) -> Node | None:
    """Find the first step of a chain that cannot be indexed; None if all of it can."""
    for node in walk(root, lambda node: node.facts.flattens):
        if not node.by_index or (node.made is not None and (_endless(node) or _remote(node) or _compressed(node))):
            return node
        if node.made is not None:
            found = _once(node.sources[0]) or blocker(node.made)
            if found is not None:
                return found
    return None


def loses_batches(root: Node) -> Node | None:
    """Find a step that chooses batches by index: where bad elements are skipped, each takes its batch along."""
    for node in walk(root):
        found = (
            node if isinstance(node, Select) and has_batches(node.source) else node.made and loses_batches(node.made)
        )
        if found is not None:
            return found
    return None


def has_batches(root: Node) -> bool:
    """Whether access by index to a chain makes batches of rows by their numbers."""
    return any(
        isinstance(node, Batch | PaddedBatch) or (node.made is not None and has_batches(node.made))
        for node in walk(root, lambda node: node.facts.flattens)
    )


def _once(outer: Node) -> Node | None:
    """Find the generator that the outer elements of a `flat_map` come from, which must run once per pass only.

    Indexing lists all outer elements (file names, or a few others), which would run it once more.
    """
    return next((node for node in walk(outer) if isinstance(node, FromGenerator)), None)


def _endless(node: Node) -> bool:
    """Whether the outer elements have no end, as far as the plan tells."""
    outer = node.sources[0]
    return outer.cardinality < 0 and any(map(never_ends, walk(outer)))


def _remote(node: Node) -> bool:
    """Whether some files below are named by URLs: indexing them would be a request for each record header."""
    return any(any(map(is_url, below.paths)) for below in walk(node) if isinstance(below, Files))


def _compressed(node: Node) -> bool:
    """Whether some archives below are compressed, as their names say."""
    made = () if node.made is None else walk(node.made)
    given = [below.compression for below in made if isinstance(below, Samples)]
    files = [path for below in walk(node) if isinstance(below, Files) for path in below.paths]
    return any(compression_of(path, how) for how in given for path in files)


def why_not(node: Node) -> str:
    """Say of a step that cannot be indexed what it is, where it was written and what to do."""
    text = f"{node.describe()} at {node.line} cannot be indexed"
    if node.made is not None and _endless(node):
        return f"{text}: it makes datasets without end; use repeat after it"
    if node.facts.flattens and _remote(node):
        return (
            f"{text}: it reads files named by URLs; index TFRecords once with gpupipe index, and read them with "
            "TFRecordDataset.from_manifest; or copy the files to a local disk"
        )
    if node.facts.flattens and _compressed(node):
        return f"{text}: it reads compressed archives; decompress them"
    if isinstance(node, Select):
        return f"{text}: its places come while it runs; give it a list of them"
    if isinstance(node, FileCache):
        return f"{text}; use cache() in memory, or ds.save(folder) and Dataset.load(folder), which can"
    if node.shuffles:
        return f"{text}; use shuffle(gp.ALL), which can"
    if isinstance(node, (Records, Samples)):
        return f"{text}: a compressed file has no index; use uncompressed files"
    if isinstance(node, Saved):
        return f"{text}: that needs at most 16 files, not compressed, saved with an index, as save writes them now"
    if isinstance(node, TableRows):
        return f"{text}: where a row of such a file starts is known only by reading all before it"
    return text
