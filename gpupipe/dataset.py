"""dataset: the chain as a user writes it. Every method makes one plan node and runs nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .arguments import (
    arity,
    checked_function,
    in_the_order_of,
    integer,
    integer_or_none,
    kept,
    parallel_calls,
    path_names,
    positive,
    reordered,
    rows_of_a_batch,
    same_structure,
    shapes_like,
    signature,
)
from .candidate import decide, name_of
from .errors import PlanError, PlanTypeError, TraceError
from .extract.compression import checked_compression
from .extract.patterns import expand, stable_names
from .options import AUTOTUNE, Options
from .plan.joins import Concatenate, Zip
from .plan.node import INFINITE, UNKNOWN_CARDINALITY, Element, Node, epoch_key
from .plan.padding import padded_shapes as checked_shapes
from .plan.padding import padding_values as checked_values
from .plan.sources import Files, FromGenerator, Param, Range, Records, Slices, Tensors
from .plan.steps import (
    Batch,
    Cache,
    Enumerate,
    Filter,
    FlatMap,
    Interleave,
    Map,
    PaddedBatch,
    Prefetch,
    Repeat,
    Shard,
    Shuffle,
    Skip,
    Take,
    Unbatch,
    WithOptions,
    options_of,
    refuse_options,
)
from .spec import LEAF, TensorSpec, as_leaf, flatten
from .trace import Symbol, Traced, active_trace, require_no_symbols, trace, trace_inner

if TYPE_CHECKING:
    from .load.iterator import DatasetIterator, OwnedIterator
    from .optimize.explain import Explanation

# What runs a chain (optimize, flow, transform, load) is imported by the first chain that runs: `import gpupipe` is
# quick.

__all__ = ["INFINITE_CARDINALITY", "UNKNOWN_CARDINALITY", "Dataset", "TFRecordDataset"]

INFINITE_CARDINALITY = INFINITE


class Dataset:
    """A lazy chain of steps over elements; immutable, every method returns a new one.

    Make one with a constructor (`from_tensor_slices`, `list_files`, `TFRecordDataset`, ...), then iterate over it.
    Building a chain reads names, never contents.
    """

    INFINITE_CARDINALITY = INFINITE
    UNKNOWN_CARDINALITY = UNKNOWN_CARDINALITY

    def __init__(self, plan: Node, passes: dict[tuple[bytes, int], int] | None = None) -> None:
        self.plan = plan
        # How many iterators were started, by plan; made by the source and handed on, so that a chain that is
        # written anew in each turn of a loop still counts its epochs.
        self._passes = {} if passes is None else passes

    def _then(self, plan: Node) -> Dataset:
        return Dataset(plan, self._passes)

    # ---- constructors

    @staticmethod
    def from_tensors(tensors: Any) -> Dataset:
        """Make a dataset of one element. Arrays above 1 MB are not copied: do not change them while they are read."""
        leaves, structure = flatten(tensors)
        if structure.kind is type(None):
            raise PlanError("from_tensors needs an element, got None")
        return Dataset(Tensors(tuple(kept(as_leaf(leaf)) for leaf in leaves), structure))

    @staticmethod
    def from_tensor_slices(tensors: Any) -> Dataset:
        """Make a dataset of the slices of dimension 0 of every leaf. Lists are arrays, tuples are structure.

        Arrays above 1 MB are not copied: do not change them while they are read.
        """
        leaves, structure = flatten(tensors)
        arrays = [kept(as_leaf(leaf)) for leaf in leaves]
        if not arrays:
            raise PlanError("from_tensor_slices needs at least one array, got None")
        for array in arrays:
            if not getattr(array, "shape", ()):
                raise PlanError(
                    f"from_tensor_slices needs arrays with a first dimension to slice, got the scalar {array!r}"
                )
        sizes = {len(array) for array in arrays}
        if len(sizes) > 1:
            raise PlanError(f"from_tensor_slices needs leaves of one length, got {', '.join(map(str, sorted(sizes)))}")
        return Dataset(Slices(tuple(arrays), structure, path_names(arrays[0])))

    @staticmethod
    def from_generator(
        generator: Callable[..., Iterable[Any]],
        output_types: Any = None,
        output_shapes: Any = None,
        args: Sequence[Any] | None = None,
        output_signature: Any = None,
    ) -> Dataset:
        """Make a dataset of what `generator(*args)` yields; it is called anew for every pass.

        Args:
            generator: a function that returns an iterable.
            output_types: a structure of dtypes, together with `output_shapes` (tf.data's older form).
            output_shapes: a structure of shapes.
            args: handed to the generator.
            output_signature: a structure of `TensorSpec`. Without one the first element decides.
        """
        if not callable(generator):
            raise PlanTypeError(f"from_generator needs a callable, got {type(generator).__name__}")
        if output_types is not None and output_signature is not None:
            raise PlanTypeError("from_generator takes output_signature or output_types, not both")
        if output_types is None and output_shapes is not None:
            raise PlanTypeError("from_generator needs output_types with output_shapes")
        require_no_symbols("from_generator", (generator, args))
        element = Element(None, ())
        if output_types is not None:
            dtypes, structure = flatten(output_types)
            shapes = [None] * len(dtypes) if output_shapes is None else shapes_like(output_shapes, structure)
            element = Element(structure, tuple(TensorSpec(s, d) for s, d in zip(shapes, dtypes, strict=True)))
        elif output_signature is not None:
            element = signature("from_generator", output_signature)
        return Dataset(FromGenerator(generator, tuple(args or ()), element))

    @staticmethod
    def range(*args: int, output_type: Any = "int64") -> Dataset:
        """Make a dataset of numbers, with the arguments of Python's `range`."""
        if not 1 <= len(args) <= 3:
            raise PlanError(f"range needs 1 to 3 arguments, got {len(args)}")
        for arg in args:
            if isinstance(arg, bool) or not isinstance(arg, (int, np.integer)):
                raise PlanTypeError(f"range needs integers, got {arg!r}")
        numbers = [int(arg) for arg in args]
        start, stop, step = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers, 1)[:3]
        if step == 0:
            raise PlanError("range needs a step other than 0")
        dtype = np.dtype(output_type)
        if dtype.kind not in "iuf":
            raise PlanTypeError(f"range needs an integer or float output_type, got {dtype}")
        return Dataset(Range(start, stop, step, dtype))

    @staticmethod
    def list_files(file_pattern: Any, shuffle: bool | None = None, seed: int | None = None) -> Dataset:
        """Make a dataset of file names.

        Args:
            file_pattern: one pattern or a list: ``*``, ``?``, ``[ab]`` within a folder, ``**`` below it, ``{a,b}``.
            shuffle: a new order in each epoch; True unless set.
            seed: of that order; the chain's seed if None.

        Raises:
            PlanError: nothing matches.
        """
        one = isinstance(file_pattern, (str, bytes)) or hasattr(file_pattern, "__fspath__")
        if not one and not isinstance(file_pattern, Iterable):
            raise PlanTypeError(f"list_files needs a pattern or a list of patterns, got {file_pattern!r}")
        given: list[Any] = [file_pattern] if one else list(file_pattern)
        patterns: list[str] = []
        for pattern in given:
            if not isinstance(pattern, (str, bytes)) and not hasattr(pattern, "__fspath__"):
                raise PlanTypeError(f"list_files needs patterns that are strings or paths, got {pattern!r}")
            patterns.append(os.fsdecode(pattern))
        hits = [(hit, pattern == hit[0]) for pattern in patterns for hit in expand(pattern)]
        plain = [path for (path, _), explicit in hits if explicit]
        found = [hit for hit, explicit in hits if not explicit]
        found = sorted([*found, *zip(plain, stable_names(plain), strict=True)])
        if not found:
            raise PlanError(f"list_files needs files, and none match {', '.join(patterns)}")
        integer_or_none("list_files", "seed", seed)
        plan: Node = Files(tuple(path for path, _ in found), tuple(name for _, name in found))
        if shuffle is None or shuffle:
            plan = Shuffle(plan, len(found), seed)
        return Dataset(plan)

    @staticmethod
    def zip(*args: Any, datasets: Any = None) -> Dataset:
        """Put the elements of several datasets side by side; the shortest ends it.

        Args:
            args: datasets, or one structure (tuple, dict) of datasets.
            datasets: the same by name.
        """
        if args and datasets is not None:
            raise PlanTypeError("zip takes datasets as arguments or by name, not both")
        given = datasets if datasets is not None else args[0] if len(args) == 1 else args
        if isinstance(given, Dataset):
            return given
        if given is None or given == ():
            raise PlanTypeError("zip needs at least one dataset")
        if isinstance(given, list):
            raise PlanTypeError("zip needs datasets in a tuple or dict, got a list; use a tuple")
        leaves, structure = flatten(given)
        for leaf in leaves:
            if not isinstance(leaf, Dataset):
                raise PlanTypeError(f"zip needs datasets, got {type(leaf).__name__}")
        first: Dataset = leaves[0]
        return first._then(Zip(tuple(leaf.plan for leaf in leaves), structure))

    # ---- element by element

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
    ) -> Dataset:
        """Apply a function to every element; a top-level tuple is unpacked into arguments.

        A function that calls gpupipe ops (or is a plain expression) is traced once and becomes part of the graph; any
        other runs as ordinary Python for each element.

        Args:
            map_func: the function.
            num_parallel_calls: threads for a Python function, `AUTOTUNE` for all; a traced one uses `Options.threads`.
            deterministic: False lets parallel Python calls overtake each other.
            synchronous: tf.data's switch; True may not be combined with `num_parallel_calls`.
            use_unbounded_threadpool: accepted for compatibility; the pool is as large as `num_parallel_calls`.
            traced: True insists on tracing, False runs ordinary Python.
            spec: what a Python function returns, a structure of `TensorSpec`; checked.
            rng: hand a Python function a `numpy.random.Generator` as last argument, seeded by (seed, epoch, element).
        """
        calls = parallel_calls("map", num_parallel_calls)
        if synchronous and calls:
            raise PlanError("map takes synchronous=True or num_parallel_calls, not both")
        checked_function("map", map_func)
        element = self.plan.element
        if traced and (rng or spec is not None):
            raise PlanError("map takes traced=True or the arguments of a Python function (rng, spec), not both")
        arity("map", map_func, element, extra=1 if rng else 0)
        graph, pending = None, False
        if traced is not False and not rng and spec is None:
            if element.known and element.structure is not None:
                graph = self._trace("map", map_func, force=traced)
            else:
                pending = bool(traced) or decide(map_func) != "python"
        if graph is None:
            require_no_symbols("map", map_func)
        result = None if spec is None else signature("map", spec)
        return self._then(Map(self.plan, map_func, graph, pending, result, calls, deterministic, rng))

    def _trace(self, who: str, fn: Callable[..., Any], force: bool | None = None) -> Traced | None:
        element = self.plan.element
        assert element.structure is not None
        outer = active_trace()
        return trace(
            fn,
            element.structure,
            element.rows(),
            batched=element.batched,
            counts=self.plan.counts,
            depth=0 if outer is None else outer.depth + 1,
            force=force,
            who=who,
        )

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """Keep the elements for which `predicate` is True. One that looks at parsed features runs before decoding."""
        checked_function("filter", predicate)
        arity("filter", predicate, self.plan.element)
        graph = None
        if self.plan.element.known and not self.plan.element.batched:
            graph = self._trace("filter", predicate)
        if graph is not None:
            (spec, *rest) = [value.spec for value in graph.outputs]
            if rest or spec.shape != () or spec.dtype != np.dtype(bool):
                got = ", ".join(str(value.spec) for value in graph.outputs)
                raise PlanError(
                    f"filter needs a predicate that returns one boolean, got {got} from {name_of(predicate)}"
                )
        else:
            require_no_symbols("filter", predicate)
        return self._then(Filter(self.plan, predicate, graph))

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
            num_parallel_calls: lets readers run ahead; `AUTOTUNE` or any number >= 1. The order stays the same.
            deterministic: False takes what is ready first.
        """
        cycle = positive("interleave", "cycle_length", None if cycle_length == AUTOTUNE else cycle_length, 16)
        block = positive("interleave", "block_length", block_length, 1)
        calls = parallel_calls("interleave", num_parallel_calls)
        inner = self._inner("interleave", map_func)
        return self._then(
            Interleave(self.plan, map_func, inner, cycle=cycle, block=block, calls=calls, deterministic=deterministic)
        )

    def _inner(self, who: str, fn: Callable[..., Any]) -> Node | None:
        """The plan of a function that returns datasets; None if it has to be called for each element."""
        checked_function(who, fn)
        element = self.plan.element
        arity(who, fn, element)
        if not element.known or element.structure is None or element.batched:
            require_no_symbols(who, fn)
            return None
        outer = active_trace()
        depth = 0 if outer is None else outer.depth + 1
        param = Param(element, depth, self.plan.counts)
        result, failed = trace_inner(fn, element.structure, element.specs, param, depth, self.plan.counts)
        if isinstance(result, Dataset):
            refuse_options(who, result.plan)
            return result.plan
        if failed:
            require_no_symbols(who, fn)
            return None
        raise PlanTypeError(
            f"{who} needs a function that returns a Dataset, got {type(result).__name__} from {name_of(fn)}"
        )

    def take(self, count: int) -> Dataset:
        """Keep the first `count` elements; all of them for a negative count."""
        return self._then(Take(self.plan, integer("take", "count", count)))

    def skip(self, count: int) -> Dataset:
        """Leave out the first `count` elements; all of them for a negative count."""
        return self._then(Skip(self.plan, integer("skip", "count", count)))

    def repeat(self, count: int | None = None) -> Dataset:
        """Go through the elements `count` times, endlessly for None or a negative count. Passes draw anew."""
        return self._then(Repeat(self.plan, -1 if count is None else integer("repeat", "count", count)))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Keep every `num_shards`-th element, beginning with number `index`."""
        shards, index = integer("shard", "num_shards", num_shards), integer("shard", "index", index)
        if shards < 1:
            raise PlanError(f"shard needs num_shards >= 1, got {shards}")
        if not 0 <= index < shards:
            raise PlanError(f"shard needs an index from 0 to {shards - 1}, got {index}")
        return self._then(Shard(self.plan, shards, index))

    def enumerate(self, start: int = 0) -> Dataset:
        """Pair every element with a running number: (int64, element)."""
        return self._then(Enumerate(self.plan, integer("enumerate", "start", start)))

    def shuffle(
        self, buffer_size: int, seed: int | None = None, reshuffle_each_iteration: bool | None = None
    ) -> Dataset:
        """Draw elements at random from a buffer of `buffer_size`.

        Args:
            buffer_size: output p holds an element of input index <= p + buffer_size - 1. Records of local files are
                held as references of about 250 bytes, not as payloads.
            seed: mixed with the chain's.
            reshuffle_each_iteration: False gives the same order in every epoch and pass.
        """
        size = integer("shuffle", "buffer_size", buffer_size)
        if size < 1:
            raise PlanError(f"shuffle needs buffer_size >= 1, got {size}")
        integer_or_none("shuffle", "seed", seed)
        return self._then(Shuffle(self.plan, size, seed, reshuffle_each_iteration is not False))

    # ---- batches and buffers

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Dataset:
        """Stack `batch_size` consecutive elements.

        Args:
            batch_size: rows of a batch.
            drop_remainder: leave out a short last batch.
            num_parallel_calls: accepted for compatibility: a batch is one run of the graph over `Options.threads`.
            deterministic: the same.
        """
        parallel_calls("batch", num_parallel_calls)
        return self._then(Batch(self.plan, rows_of_a_batch("batch", batch_size), bool(drop_remainder)))

    def padded_batch(
        self, batch_size: int, padded_shapes: Any = None, padding_values: Any = None, drop_remainder: bool = False
    ) -> Dataset:
        """Stack `batch_size` consecutive elements, each padded to one shape.

        Args:
            batch_size: rows of a batch.
            padded_shapes: a structure of shapes like the element; None or -1 in a shape is the largest of the batch.
                Without it unknown dimensions are padded.
            padding_values: one value, or a structure of them; 0, False or b"" unless given.
            drop_remainder: leave out a short last batch.
        """
        size = rows_of_a_batch("padded_batch", batch_size)
        element = self.plan.element
        shapes = values = None
        if element.structure is not None:
            shapes = checked_shapes(padded_shapes, element)
            values = checked_values(padding_values, element)
        given = None if element.known else (padded_shapes, padding_values)
        return self._then(PaddedBatch(self.plan, size, bool(drop_remainder), shapes, values, given))

    def unbatch(self) -> Dataset:
        """Take batches apart into their rows."""
        for spec in self.plan.element.specs:
            if spec.shape == ():
                raise PlanError(f"unbatch needs leaves with a first dimension, got the scalar {spec}")
        sizes = {spec.shape[0] for spec in self.plan.element.specs if spec.shape and spec.shape[0] is not None}
        if len(sizes) > 1:
            raise PlanError(f"unbatch needs leaves of one length, got {' and '.join(map(str, sorted(sizes)))}")
        return self._then(Unbatch(self.plan))

    def prefetch(self, buffer_size: int | None) -> Dataset:
        """Make up to `buffer_size` elements ahead, in the background; `AUTOTUNE` or None lets gpupipe choose."""
        size = AUTOTUNE if buffer_size is None else integer("prefetch", "buffer_size", buffer_size)
        if size < AUTOTUNE:
            raise PlanError(f"prefetch needs buffer_size >= 0 or AUTOTUNE, got {size}")
        return self._then(Prefetch(self.plan, size))

    def cache(self, filename: str = "") -> Dataset:
        """Keep the elements of the first full pass in memory.

        Random ops before the cache are drawn once; those behind it differ from epoch to epoch.
        """
        if not isinstance(filename, str) and not hasattr(filename, "__fspath__"):
            raise PlanTypeError(f"cache needs a file name, got {filename!r}")
        if filename:
            raise PlanError(
                f"cache keeps elements in memory in this version, got the file name {filename!r}; use cache()"
            )
        from .flow.buffers import CacheStore

        return self._then(Cache(self.plan, CacheStore()))

    def concatenate(self, dataset: Dataset) -> Dataset:
        """Append the elements of another dataset of the same structure and dtypes."""
        if not isinstance(dataset, Dataset):
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
        if isinstance(first, Concatenate) and second.number < first.number:
            # `ds = ds.concatenate(d)` in a loop is one node; its number, and so every key before, stays.
            return self._then(Concatenate((*first.inputs, second), number=first.number))
        return self._then(Concatenate((first, second)))

    def apply(self, transformation_func: Callable[[Dataset], Dataset]) -> Dataset:
        """Return `transformation_func(self)`."""
        result = transformation_func(self)
        if not isinstance(result, Dataset):
            raise PlanTypeError(f"apply needs a function that returns a Dataset, got {type(result).__name__}")
        return result

    # ---- options, facts

    def with_options(self, options: Options) -> Dataset:
        """Set options; they are merged along the chain, the last one wins."""
        if not isinstance(options, Options):
            raise PlanTypeError(f"with_options needs gpupipe.Options, got {type(options).__name__}")
        return self._then(WithOptions(self.plan, options))

    def options(self) -> Options:
        """The options of the chain, merged."""
        return options_of(self.plan)

    @property
    def element_spec(self) -> Any:
        """The structure of `TensorSpec` of an element. Never reads data."""
        return self.plan.element.nested

    def cardinality(self) -> int:
        """How many elements there are, `INFINITE_CARDINALITY` (-1) or `UNKNOWN_CARDINALITY` (-2). Reads nothing."""
        return self.plan.cardinality

    def __len__(self) -> int:
        count = self.cardinality()
        if count == INFINITE:
            raise PlanTypeError("the dataset is infinite: it has no len()")
        if count == UNKNOWN_CARDINALITY:
            raise PlanTypeError("the length of the dataset is unknown before it is read: it has no len()")
        return count

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<Dataset {self.plan.describe()}, element_spec={self.element_spec}>"

    def explain(self) -> Explanation:
        """Say what the chain is and how it will run: stages, devices, fused ops, buffers. Reads no data."""
        from .optimize.explain import explain

        return explain(self.plan, self.options().resolve())

    # ---- iteration

    def __iter__(self) -> DatasetIterator:
        return self.iterator()

    def iterator(self, epoch: int | None = None) -> DatasetIterator:
        """An iterator over one epoch.

        Args:
            epoch: what random ops and shuffles draw with. Unless set it counts the iterators that were started over the
                same sources with an equal chain: 0 for the first loop, 1 for the second.
        """
        if epoch is not None and integer("iterator", "epoch", epoch) < 0:
            raise PlanError(f"iterator needs an epoch >= 0, got {epoch}")
        from .load.iterator import DatasetIterator

        epochs = self._counted() if epoch is None else iter((epoch,))
        return DatasetIterator(self.plan, self.options().resolve(), epochs)

    def epochs(self, count: int, start: int = 0) -> DatasetIterator:
        """One iterator over `count` epochs, numbered from `start`."""
        if integer("epochs", "count", count) < 0 or integer("epochs", "start", start) < 0:
            raise PlanError(f"epochs needs count and start >= 0, got {count} and {start}")
        from .load.iterator import DatasetIterator

        return DatasetIterator(self.plan, self.options().resolve(), iter(range(start, start + count)))

    def _counted(self) -> Iterator[int]:
        """The number of an iterator, taken when it starts."""
        key = epoch_key(self.plan), self.options().resolve().seed
        number = self._passes.get(key, 0)
        self._passes[key] = number + 1
        yield number

    def as_numpy_iterator(self) -> OwnedIterator:
        """An iterator whose leaves are all on the host: arrays, NumPy scalars and bytes."""
        from .load.iterator import OwnedIterator

        return OwnedIterator(self.plan, self.options().resolve(), self._counted())

    def first(self) -> Any:
        """The first element of epoch 0. Does not count as an epoch.

        Raises:
            IndexError: there is none.
        """
        with self.iterator(epoch=0) as items:
            for element in items:
                return element
        raise IndexError("the dataset is empty: it has no first element")


class TFRecordDataset(Dataset):
    """The records of TFRecord files, as bytes.

    Args:
        filenames: a path, a (nested) list of paths, or a dataset of paths.
        compression_type: "", "GZIP" or "ZLIB".
        buffer_size: accepted for compatibility; blocks are as large as measured best.
        num_parallel_reads: files read in turn, one record each; `AUTOTUNE` is 16; None reads file after file.
    """

    def __init__(
        self,
        filenames: Any,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
    ) -> None:
        if buffer_size is not None and integer("TFRecordDataset", "buffer_size", buffer_size) < 0:
            raise PlanError(f"TFRecordDataset needs buffer_size >= 0, got {buffer_size}")
        compression = checked_compression(compression_type)
        if isinstance(filenames, Symbol):
            super().__init__(_symbolic_records(filenames, compression))
            return
        source = filenames if isinstance(filenames, Dataset) else Dataset(_listed(filenames))
        spec = source.element_spec
        if not isinstance(spec, TensorSpec) or spec.dtype not in (bytes, None) or spec.shape not in ((), None):
            raise PlanTypeError(f"TFRecordDataset needs a dataset of single file names, got {spec}")
        inner = Records(Param(Element(LEAF, (TensorSpec((), bytes),)), 0, source.plan.counts), 0, compression)
        plan: Node
        if num_parallel_reads is None:
            plan = FlatMap(source.plan, TFRecordDataset, inner)
        else:
            reads = integer("TFRecordDataset", "num_parallel_reads", num_parallel_reads)
            if reads == 0 or reads < AUTOTUNE:
                raise PlanError(f"TFRecordDataset needs num_parallel_reads >= 1 or AUTOTUNE, got {reads}")
            cycle = 16 if reads == AUTOTUNE else reads
            plan = Interleave(source.plan, TFRecordDataset, inner, cycle=cycle, calls=reads)
        super().__init__(plan, source._passes)


def _symbolic_records(path: Symbol, compression: str) -> Node:
    """The records of the file that the parameter of an `interleave` function names."""
    leaf = path.leaf_of_param()
    if leaf is None:
        raise TraceError("TFRecordDataset needs the path itself here, not a value computed from it")
    param, index = leaf
    return Records(param, index, compression)


def _listed(filenames: Any) -> Node:
    paths: list[str] = []

    def add(item: Any) -> None:
        if isinstance(item, bytes):
            paths.append(item.decode(errors="surrogateescape"))
        elif isinstance(item, str):
            paths.append(str(item))
        elif hasattr(item, "__fspath__"):
            add(item.__fspath__())
        elif isinstance(item, (list, tuple, np.ndarray)):
            for inner in item:
                add(inner)
        else:
            raise PlanTypeError(f"TFRecordDataset needs file names, got {item!r}")

    add(filenames)
    return Files(tuple(paths), tuple(stable_names(paths)), "TFRecordDataset")
