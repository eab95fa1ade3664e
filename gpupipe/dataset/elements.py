"""elements: the methods of a `Dataset`: steps that go element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from ..arguments import (
    any_integer,
    arity,
    checked_function,
    in_the_order_of,
    integer,
    parallel_calls,
    positive,
    reordered,
    same_structure,
    signature,
    travels,
)
from ..errors import PlanError, PlanTypeError
from ..graph.classify import classify
from ..graph.trace import require_no_symbols
from ..options import AUTOTUNE
from ..plan.index import Part
from ..plan.joins import Concatenate
from ..plan.maps import Filter, FlatMap, Interleave, Map
from ..plan.order import Enumerate, Repeat, Shard, Skip, Take
from .base import Chain

if TYPE_CHECKING:
    from .. import Dataset

__all__ = ["Elements"]


class Elements(Chain):
    """The methods of a `Dataset`: steps that go element by element."""

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        use_unbounded_threadpool: bool = False,
        *,
        traced: bool | None = None,
        spec: Any = None,
        rng: bool = False,
        workers: str = "thread",
    ) -> Dataset:
        """Apply a function to every element; a top-level tuple is unpacked into arguments.

        A function that calls gpupipe ops (or is a plain expression) is traced and becomes part of the graph; any other
        runs as ordinary Python for each element. Tracing calls the function twice, with symbols, and both calls have to
        make the same graph; `print` shows what a symbol stands for.

        Args:
            map_func: the function.
            num_parallel_calls: threads for a Python function, `AUTOTUNE` for all; a traced one uses `Options.threads`.
            deterministic: False lets parallel Python calls overtake each other.
            synchronous: tf.data's switch; True may not be combined with `num_parallel_calls`.
            use_unbounded_threadpool: accepted for compatibility; the pool is as large as `num_parallel_calls`.
            traced: True insists on tracing, False runs ordinary Python.
            spec: what a Python function returns, a structure of `TensorSpec`; checked.
            rng: hand a Python function a `numpy.random.Generator` as last argument, seeded by (seed, epoch, element).
            workers: ``"thread"``, or ``"process"`` for a Python function that holds the GIL: it runs in
                `num_parallel_calls` spawned processes (`Options.threads` unless set), is never traced, must be defined
                at the top of a module, and its script needs ``if __name__ == "__main__":``. Elements travel through
                shared memory. The processes start with the first iterator and wait for the next one; they end with this
                dataset, those made of it and their iterators. Two iterators at a time have processes of their own.
                What a function keeps in global variables stays there from one epoch to the next.
                ``Options(persistent_workers=False)`` starts and ends them with each iterator.

        Raises:
            PlanError: arguments that exclude each other, or a function that other processes cannot import.
            TraceError: a traced function needs a value, or makes another graph the second time: it names the line,
                and both constants.
        """
        calls = parallel_calls("map", num_parallel_calls)
        if workers not in ("thread", "process"):
            raise PlanError(f"map needs workers='thread' or workers='process', got {workers!r}")
        if synchronous and calls:
            raise PlanError("map takes synchronous=True or num_parallel_calls, not both")
        checked_function("map", map_func)
        element = self.plan.element
        if traced and (rng or spec is not None):
            raise PlanError("map takes traced=True or the arguments of a Python function (rng, spec), not both")
        arity("map", map_func, element, extra=1 if rng else 0)
        if workers == "process":
            if traced or synchronous:
                raise PlanError("map takes workers='process' or traced=True or synchronous=True, not two of them")
            travels("map", map_func)
            traced, calls = False, calls or AUTOTUNE
        graph, pending = None, False
        if traced is not False and not rng and spec is None:
            if element.known and element.structure is not None:
                graph = self._trace("map", map_func, force=traced)
            else:
                pending = bool(traced) or classify(map_func) != "python"
        if graph is None:
            require_no_symbols("map", map_func)
        result = None if spec is None else signature("map", spec)
        kept = None
        if workers == "process":
            from ..flow.kept import Home

            kept = Home()
        return self._then(Map(self.plan, map_func, graph, pending, result, calls, deterministic, rng, workers, kept))

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """Keep the elements for which `predicate` is True. One that looks at parsed features runs before decoding."""
        return self._then(Filter(self.plan, predicate, self._predicate("filter", predicate)))

    def flat_map(self, map_func: Callable[..., Dataset]) -> Dataset:
        """Make a dataset of each element and put them one after the other."""
        return self._then(FlatMap(self.plan, map_func, self._inner("flat_map", map_func)))

    def interleave(
        self,
        map_func: Callable[..., Dataset],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Dataset:
        """Make a dataset of each element and take elements of several in turn.

        Args:
            map_func: returns a Dataset.
            cycle_length: datasets open at a time; 16 unless set, on every machine.
            block_length: elements taken from each in turn; 1 unless set.
            num_parallel_calls: lets readers run ahead, and so many threads, `cycle_length` at most, work on datasets
                that call Python for each element; as many datasets are made before their turn comes. `AUTOTUNE` or
                any number >= 1. The order stays the same.
            deterministic: False takes what is ready first.
        """
        cycle = positive("interleave", "cycle_length", None if cycle_length == AUTOTUNE else cycle_length, 16)
        block = positive("interleave", "block_length", block_length, 1)
        calls = parallel_calls("interleave", num_parallel_calls)
        inner = self._inner("interleave", map_func)
        return self._then(
            Interleave(self.plan, map_func, inner, cycle=cycle, block=block, calls=calls, deterministic=deterministic)
        )

    def take(self, count: int) -> Dataset:
        """Keep the first `count` elements; all of them for a negative count."""
        return self._then(Take(self.plan, integer("take", "count", count)))

    def skip(self, count: int) -> Dataset:
        """Leave out the first `count` elements; all of them for a negative count."""
        return self._then(Skip(self.plan, integer("skip", "count", count)))

    def repeat(self, count: int | None = None) -> Dataset:
        """Go through the elements `count` times, endlessly for None or a negative count. Passes draw anew.

        A pass that happens to be empty ends nothing. Ten in a row end an endless repeat, which says so in the log.
        """
        return self._then(Repeat(self.plan, -1 if count is None else integer("repeat", "count", count)))

    def shard(self, num_shards: int, index: int, *, even: Literal["drop", "wrap"] | None = None) -> Dataset:
        """Keep every `num_shards`-th element, beginning with number `index`.

        Shards of a number of elements that `num_shards` does not divide differ by one, as in tf.data. Ranks that train
        together need equally many steps, or the one with more of them waits for ever: that is what `even` is for.

        Args:
            num_shards: how many shards there are, >= 1: the number of ranks.
            index: which one, from 0: the rank.
            even: ``"drop"`` leaves out the last elements that do not make a whole round of the shards, so that each has
                ``n // num_shards``. ``"wrap"`` gives each ``ceil(n / num_shards)``: the last shards get elements from
                the start a second time, as PyTorch's `DistributedSampler` gives them. Such an element is the one that
                another shard had, random draws included. Both hold for streams whose length nobody knows: "drop"
                gives an element when the rest of its round was read, "wrap" keeps the first elements, or opens its
                input again. ``None`` is uneven.

        Bad elements have a place and count, and ``on_error="replace"`` keeps them: every rank makes equally many steps.
        Under "skip" and "raise" a rank with more bad elements has fewer good ones, which no `even` can mend.

        Example:
            >>> from gpupipe import Dataset
            >>> [[int(x) for x in Dataset.range(5).shard(2, i, even="drop")] for i in range(2)]
            [[0, 2], [1, 3]]
            >>> [[int(x) for x in Dataset.range(5).shard(2, i, even="wrap")] for i in range(2)]
            [[0, 2, 4], [1, 3, 0]]

        Raises:
            PlanError: there is no such shard.
        """
        shards, index = integer("shard", "num_shards", num_shards), integer("shard", "index", index)
        if shards < 1:
            raise PlanError(f"shard needs num_shards >= 1, got {shards}")
        if not 0 <= index < shards:
            raise PlanError(f"shard needs an index from 0 to {shards - 1}, got {index}")
        if even not in (None, "drop", "wrap"):
            raise PlanError(f"shard needs even='drop' or even='wrap', or None, got {even!r}")
        return self._then(Shard(self.plan, shards, index, even))

    def enumerate(self, start: int = 0) -> Dataset:
        """Pair every element with a running number: (int64, element)."""
        return self._then(Enumerate(self.plan, integer("enumerate", "start", start)))

    def split(self, fractions: Sequence[float], seed: int = 0) -> tuple[Dataset, ...]:
        """Split into parts that have no element in common and together have all of them.

        Which element is in which part depends on the number of elements and on `seed` only: it is the same in every
        epoch, pass and run, whatever the chain's own seed. Each part has its elements in a random order, which is
        always the same; `shuffle` behind it gives another one in each epoch. It needs steps that can be indexed.

        Args:
            fractions: of the parts, e.g. ``[0.8, 0.1, 0.1]``; their sum is 1. Sizes are by largest remainder.
            seed: decides the parts.

        Raises:
            PlanError: fractions that are negative or do not add up; a step that cannot be indexed.
        """
        seed = any_integer("split", "seed", seed)
        if not isinstance(fractions, (Sequence, np.ndarray)) or isinstance(fractions, (str, bytes)):
            raise PlanTypeError(f"split needs a list of fractions, e.g. [0.8, 0.2], got {fractions!r}")
        weights = []
        for fraction in fractions:
            if isinstance(fraction, bool) or not isinstance(fraction, (int, float, np.integer, np.floating)):
                raise PlanTypeError(f"split needs numbers, got {fraction!r}")
            if not 0 <= fraction <= 1:
                raise PlanError(f"split needs fractions from 0 to 1, got {fraction!r}")
            weights.append(round(float(fraction) * 1e9))  # integers: the sizes are exact
        if abs(sum(weights) - 1e9) > 1e4:
            raise PlanError(f"split needs fractions whose sum is 1, got {list(fractions)} with {sum(weights) / 1e9:g}")
        return tuple(self._select("split", Part(tuple(weights), i, seed)) for i in range(len(weights)))

    def concatenate(self, dataset: Dataset) -> Dataset:
        """Append the elements of another dataset of the same structure and dtypes."""
        if not isinstance(dataset, Chain):
            raise PlanTypeError(f"concatenate needs a Dataset, got {type(dataset).__name__}")
        mine, other = self.plan.element, dataset.plan.element
        if mine.structure is not None and other.structure is not None:
            if not same_structure(mine, other):
                raise PlanTypeError(
                    f"concatenate needs datasets of one structure, got {mine.structure} and {other.structure}"
                )
            for a, b in zip(mine.specs, reordered(mine, other), strict=True):
                if a.dtype is not None and b.dtype is not None and a.dtype != b.dtype:
                    raise PlanTypeError(f"concatenate needs datasets of one dtype, got {a} and {b}")
            if mine.structure != other.structure:
                dataset = dataset.map(in_the_order_of(mine))
        first, second = self.plan, dataset.plan
        if isinstance(first, Concatenate) and second.branch < first.branch:
            # `ds = ds.concatenate(d)` in a loop is one node; its number, and so that of every zip behind it, stays.
            joined = Concatenate((*first.inputs, second), branch=first.branch)
        else:
            joined = Concatenate((first, second))
        return self._joined("concatenate", joined, (self, dataset))

    def apply(self, transformation_func: Callable[[Dataset], Dataset]) -> Dataset:
        """Return `transformation_func(self)`."""
        result = transformation_func(cast("Dataset", self))
        if not isinstance(result, Chain):
            raise PlanTypeError(f"apply needs a function that returns a Dataset, got {type(result).__name__}")
        return result
