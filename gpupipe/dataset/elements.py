"""elements: the methods of `Dataset` that work element by element."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import numpy.typing as npt

from ..arguments import (
    any_integer,
    checked_function,
    integer,
    parallel_calls,
    signature,
    travels,
)
from ..errors import PlanError, PlanTypeError
from ..graph.classify import classify
from ..graph.sites import users_frames
from ..graph.trace import require_no_symbols
from ..options import AUTOTUNE
from ..plan.index import Part, Places, Select, blocker, why_not
from ..plan.joins import Concatenate
from ..plan.maps import Filter, FlatMap, Interleave, Map
from ..plan.mistakes import refuse_certain_mistakes
from ..plan.order import Enumerate, Repeat, Shard, Skip, Take
from .base import Chain, alike
from .places import batches_of, places_of

if TYPE_CHECKING:
    from .. import Dataset

__all__ = ["Elements"]

Array = npt.NDArray[np.integer[Any]]


class Elements(Chain):
    """Steps that work element by element."""

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
        runs as ordinary Python for each element. Tracing calls the function twice with symbols, and both calls must
        make the same graph; `print` shows what a symbol stands for.

        Args:
            map_func: the function.
            num_parallel_calls: threads for a Python function; `AUTOTUNE` starts with `Options.threads` and changes the
                number while the chain runs, see `Options.autotune`. Traced functions always use `Options.threads`.
            deterministic: False lets parallel Python calls overtake each other; default: `Options.deterministic`.
            synchronous: tf.data's switch; True excludes `num_parallel_calls`.
            use_unbounded_threadpool: accepted for compatibility; the pool has `num_parallel_calls` threads.
            traced: True requires tracing, False runs ordinary Python.
            spec: the results of a Python function, a structure of `TensorSpec`; checked.
            rng: pass a `numpy.random.Generator`, seeded by (seed, epoch, element), to a Python function as its last
                argument.
            workers: ``"thread"``, or ``"process"`` for a Python function that holds the GIL. It runs in
                `num_parallel_calls` spawned processes (default: `Options.threads`) and is never traced; it must be
                defined at the top of a module, and its script needs ``if __name__ == "__main__":``. Elements travel
                through shared memory. The processes start with the first iterator and wait for the next one; they end
                with this dataset, those made of it and their iterators. Concurrent iterators have separate processes.
                Global variables of a function keep their values from one epoch to the next.
                ``Options(persistent_workers=False)`` starts and ends the processes with each iterator.

        Raises:
            PlanError: arguments that exclude each other, or a function that other processes cannot import.
            TraceError: a traced function needs a value, or makes another graph the second time; names the line and both
                constants.
        """
        calls = parallel_calls("map", num_parallel_calls)
        if workers not in ("thread", "process"):
            raise PlanError(f"map needs workers='thread' or workers='process', got {workers!r}")
        if synchronous and calls:
            raise PlanError("map takes synchronous=True or num_parallel_calls, not both")
        if traced and (rng or spec is not None):
            raise PlanError("map takes traced=True or the arguments of a Python function (rng, spec), not both")
        element = self.plan.element
        checked_function("map", map_func, element, extra=1 if rng else 0)
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
            from ..flow.idle_workers import IdleWorkers

            kept = IdleWorkers()
        node = Map(self.plan, map_func, graph, pending, result, calls, deterministic, rng, workers, kept)
        if graph is not None:
            try:
                refuse_certain_mistakes(node)
            except PlanError as error:
                raise error.with_traceback(users_frames(error)) from None
        return self._then(node)

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """Keep the elements for which `predicate` is True.

        A predicate on parsed features runs before the images are decoded.

        Args:
            predicate: returns one boolean; a top-level tuple is unpacked into arguments.

        Raises:
            PlanError: the predicate is known to return something other than one boolean.
        """
        return self._then(Filter(self.plan, predicate, self._predicate("filter", predicate)))

    def flat_map(self, map_func: Callable[..., Dataset]) -> Dataset:
        """Make a dataset of each element, and concatenate them.

        Args:
            map_func: takes an element and returns a Dataset; a top-level tuple is unpacked into arguments.
        """
        return self._then(FlatMap(self.plan, map_func, self._inner("flat_map", map_func)))

    def interleave(
        self,
        map_func: Callable[..., Dataset],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Dataset:
        """Make a dataset of each element, and take elements of several datasets in turn.

        Args:
            map_func: takes an element and returns a Dataset; a top-level tuple is unpacked into arguments.
            cycle_length: datasets open at a time; default 16, on every machine.
            block_length: consecutive elements of one dataset; default 1.
            num_parallel_calls: `AUTOTUNE` or a number >= 1: readers run ahead, and that many threads, at most
                `cycle_length`, work on datasets that call Python for each element; as many datasets are made ahead.
                The order stays the same.
            deterministic: False takes what is ready first; default: `Options.deterministic`.
        """
        cycle = 16 if cycle_length in (None, AUTOTUNE) else integer("interleave", "cycle_length", cycle_length, 1)
        block = 1 if block_length is None else integer("interleave", "block_length", block_length, 1)
        calls = parallel_calls("interleave", num_parallel_calls)
        inner = self._inner("interleave", map_func)
        return self._then(
            Interleave(self.plan, map_func, inner, cycle=cycle, block=block, calls=calls, deterministic=deterministic)
        )

    def take(self, count: int) -> Dataset:
        """Keep the first `count` elements; all of them for a negative count."""
        return self._then(Take(self.plan, integer("take", "count", count)))

    def skip(self, count: int) -> Dataset:
        """Skip the first `count` elements; all of them for a negative count."""
        return self._then(Skip(self.plan, integer("skip", "count", count)))

    def repeat(self, count: int | None = None) -> Dataset:
        """Repeat the elements `count` times, forever for None or a negative count. Each pass draws new random values.

        An empty pass does not end the repeat. Ten in a row end an endless one, and the log says so.
        """
        return self._then(Repeat(self.plan, -1 if count is None else integer("repeat", "count", count)))

    def shard(self, num_shards: int, index: int, *, even: Literal["drop", "wrap"] | None = None) -> Dataset:
        """Keep every `num_shards`-th element, starting with element `index`.

        As in tf.data, shards differ in length by one where `num_shards` does not divide the number of elements. Ranks
        that train together need the same number of steps, or the rank with more of them waits forever: use `even`.

        Args:
            num_shards: number of shards, >= 1: the number of ranks.
            index: which shard, from 0: the rank.
            even: ``"drop"`` drops an incomplete last round, so that each shard has ``n // num_shards`` elements.
                ``"wrap"`` gives each ``ceil(n / num_shards)``: the last shards get elements from the start a second
                time, as PyTorch's `DistributedSampler` gives them, equal to those of the other shards, random draws
                included; `iterator.valid` is False for them. Both also work for streams of unknown length: "drop" gives
                an element once the rest of its round was read, "wrap" keeps the first elements or opens its input
                again. Default: uneven shards.

        Behind `batch` on a chain that can be indexed, only the batches of this shard are made, under
        ``on_error="raise"`` and without ``even="wrap"``. A bad element then is an error of its batch, which only the
        shard of that batch raises, and the rows of no other batch take its place; after it, the next batch of the
        shard follows. Elsewhere a shard makes the batches of all, and `explain()` says why.

        Bad elements count, and ``on_error="replace"`` keeps their number, so every rank makes the same number of steps.
        Under "skip" and "raise" a rank with more bad elements has fewer good ones, whatever `even` is.

        Example:
            >>> from gpupipe import Dataset
            >>> [[int(x) for x in Dataset.range(5).shard(2, i, even="drop")] for i in range(2)]
            [[0, 2], [1, 3]]
            >>> [[int(x) for x in Dataset.range(5).shard(2, i, even="wrap")] for i in range(2)]
            [[0, 2, 4], [1, 3, 0]]

        Raises:
            PlanError: no such shard, or another `even`.
        """
        shards, index = integer("shard", "num_shards", num_shards, 1), integer("shard", "index", index)
        if not 0 <= index < shards:
            raise PlanError(f"shard needs an index from 0 to {shards - 1}, got {index}")
        if even not in (None, "drop", "wrap"):
            raise PlanError(f"shard needs even='drop' or even='wrap', or None, got {even!r}")
        return self._then(Shard(self.plan, shards, index, even))

    def enumerate(self, start: int = 0) -> Dataset:
        """Number the elements from `start`: (int64, element)."""
        return self._then(Enumerate(self.plan, integer("enumerate", "start", start)))

    def split(self, fractions: Sequence[float], seed: int = 0) -> tuple[Dataset, ...]:
        """Split into disjoint parts that together have all elements, for chains whose steps can be indexed.

        The parts depend only on the number of elements and on `seed`: they are the same in every epoch, pass and run,
        whatever the chain's own seed. Each part has a fixed random order; add `shuffle` for a new one in each epoch.

        Args:
            fractions: of the parts, e.g. ``[0.8, 0.1, 0.1]``, 0 to 1, with sum 1. Sizes are by largest remainder.
            seed: decides the parts.

        Raises:
            PlanError: fractions that are negative or do not sum to 1, or a step that cannot be indexed; or
                ``on_error="skip"`` behind `batch`, when it starts.
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

    def pick(
        self,
        places: Iterable[int] | Iterable[Iterable[int]] | Array | Callable[..., Iterable[int]],
        *,
        redraw: bool = True,
    ) -> Dataset:
        """The elements at some places, in the order of the places; the way to write a sampler or a curriculum.

        ``ds.pick(places)`` gives what ``[ds[i] for i in places]`` gives, in the epoch of the loop, but opens the files
        once, reads ahead, and keeps the parallel maps and the prefetch of the chain. Behind `batch`, places are those
        of batches.

        A place that comes again within a loop is another draw: the second time it has the random crops, flips and
        colours of the second pass of a `repeat`, and so on. The elements are the same.

        Places may also come while the chain runs, from an iterator. Then an element is delivered once it is there,
        even if the iterator lets the chain wait for the next place. The chain takes a place when it needs one: a plain
        loop for each element, in its own thread; prefetches, parallel maps and stages with images some ahead.

        A state has the number of places that were given, and a digest of them. To resume, a function is called again
        and must give the same ones. A plain iterator gives its places to one loop; its chain has no state, and a second
        loop is an error. See the guide's page "Samplers".

        Args:
            places: indices >= 0, in any order, also repeated ones: a list, a range, or an integer array or tensor of
                shape (N,), which is copied; an iterator of integers; or an object that is iterated over in each pass (a
                sampler, also of PyTorch), or a function called in each that returns such an object. A function with
                one argument gets the epoch. A sampler's `set_epoch` is called, and its generator gives other numbers in
                each epoch; its `len`, if it has one, is the length of this dataset. Lists of places make batches;
                so does an object with a `batch_size` that gives lists of that size, the last may be shorter (a batch
                sampler).
            redraw: False gives a place the same random numbers each time that it comes in a pass.

        Example:
            >>> from gpupipe import Dataset
            >>> squares = Dataset.range(9).map(lambda x: x * x)
            >>> [int(x) for x in squares.pick([5, 3, 5])]
            [25, 9, 25]
            >>> [int(x) for x in squares.pick(i for i in range(9) if i % 4 == 0)]
            [0, 16, 64]

        Raises:
            PlanError: a step cannot be indexed, names the step; a place that the dataset does not have, when the chain
                starts if its length is unknown before, or when it comes from an iterator; or ``on_error="skip"``
                behind `batch`, when it starts; or a sampler that gives more or fewer places than its `len`.
            FunctionError: by `next`, whatever `Options.on_error` says: the iterator or the function raised.
        """
        if (batches := batches_of(places)) is not None:
            picked = self.pick(batches.places, redraw=redraw).batch(batches.size)
            if batches.sizes is not None:
                picked = picked.rebatch(batches.sizes)
            return picked if batches.count < 0 else picked.assert_cardinality(batches.count)
        step = blocker(self.plan)
        if step is not None:
            raise PlanError(f"pick needs steps that can be indexed, and {why_not(step)}")
        order = places_of(places, redraw)
        if isinstance(order, Places) and self.plan.cardinality >= 0:
            order.size(self.plan.cardinality)
        return self._then(Select(self.plan, order))

    def concatenate(self, dataset: Dataset) -> Dataset:
        """Append the elements of another dataset of the same structure and dtypes.

        Raises:
            PlanTypeError: the structures or dtypes differ.
        """
        if not isinstance(dataset, Chain):
            raise PlanTypeError(f"concatenate needs a Dataset, got {type(dataset).__name__}")
        dataset = alike("concatenate", [cast("Dataset", self), dataset])[1]
        first, second = self.plan, dataset.plan
        if isinstance(first, Concatenate) and second.branch < first.branch:
            # `ds = ds.concatenate(d)` in a loop is one node; its number, and so that of every later zip, stays.
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
