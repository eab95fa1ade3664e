"""sources: the constructors of `Dataset`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..arguments import (
    integer_or_none,
    kept,
    number_type,
    parallel_calls,
    path_names,
    shapes_like,
    signature,
)
from ..brief import digits
from ..errors import GpupipeError, PlanError, PlanTypeError, shown_name
from ..extract.storage.at_once import at_once
from ..extract.storage.glob import unescaped_name
from ..extract.storage.patterns import expand, file_name, is_url, stable_names
from ..graph.trace import require_no_symbols
from ..integers import is_integer, plain
from ..plan.cache import SavedFiles
from ..plan.joins import Zip
from ..plan.node import ElementType, Node
from ..plan.order import Shuffle
from ..plan.sources import Files, FromGenerator, FromIndexable, Range, Slices, Tensors
from ..spec import TensorSpec, as_leaf, flatten
from .base import Chain, new

if TYPE_CHECKING:
    from .. import Dataset

__all__ = ["Sources"]


class Sources(Chain):
    """Constructors."""

    @staticmethod
    def from_tensors(tensors: Any) -> Dataset:
        """Make a dataset of one element. Arrays above 1 MB are not copied: do not change them while iterating."""
        leaves, structure = flatten(tensors)
        if structure.kind is type(None):
            raise PlanError("from_tensors needs an element, got None")
        return new(Tensors(tuple(kept(as_leaf(leaf)) for leaf in leaves), structure))

    @staticmethod
    def from_tensor_slices(tensors: Any) -> Dataset:
        """Make a dataset of the slices of every leaf along dimension 0. Lists are arrays, tuples are structure.

        Arrays above 1 MB are not copied: do not change them while iterating.

        Shapes: ``T[N,...] -> T[...]`` for each leaf, N elements.

        Raises:
            PlanError: a leaf without dimensions, or leaves of different lengths.
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
        return new(Slices(tuple(arrays), structure, path_names(arrays[0])))

    @staticmethod
    def from_generator(
        generator: Callable[..., Iterable[Any]],
        output_types: Any = None,
        output_shapes: Any = None,
        args: Sequence[Any] | None = None,
        output_signature: Any = None,
    ) -> Dataset:
        """Make a dataset of the items that `generator(*args)` yields; it is called again for every pass.

        Args:
            generator: a function that returns an iterable.
            output_types: a structure of dtypes, with `output_shapes` (tf.data's older form of a signature).
            output_shapes: a structure of shapes.
            args: arguments for the generator.
            output_signature: a structure of `TensorSpec`. By default the first element decides.

        Raises:
            PlanTypeError: not a function, both forms of a signature, or shapes without types.
        """
        if not callable(generator):
            raise PlanTypeError(f"from_generator needs a callable, got {type(generator).__name__}")
        if output_types is not None and output_signature is not None:
            raise PlanTypeError("from_generator takes output_signature or output_types, not both")
        if output_types is None and output_shapes is not None:
            raise PlanTypeError("from_generator needs output_types with output_shapes")
        require_no_symbols("from_generator", (generator, args))
        element = ElementType(None, ())
        if output_types is not None:
            dtypes, structure = flatten(output_types)
            shapes = [None] * len(dtypes) if output_shapes is None else shapes_like(output_shapes, structure)
            element = ElementType(structure, tuple(TensorSpec(s, d) for s, d in zip(shapes, dtypes, strict=True)))
        elif output_signature is not None:
            element = signature("from_generator", output_signature)
        return new(FromGenerator(generator, tuple(args or ()), element))

    @staticmethod
    def from_indexable(items: Any, spec: Any = None, num_parallel_calls: int | None = None) -> Dataset:
        """Make a dataset of an object with a length and items by index: a PyTorch dataset, a list, an h5py dataset.

        It can be indexed: `shuffle(gp.ALL)`, `split`, `skip` and `ds[i]` read only the items they need. An exception
        from `items[i]` is the error of that element.

        Args:
            items: `len(items)` is called once, here; `items[i]` with Python integers, when elements are needed.
            spec: a structure of `TensorSpec` that every item must match. By default the first item decides.
            num_parallel_calls: threads that read items, `AUTOTUNE` as in `map`; None reads in the thread that
                needs them.

        Raises:
            PlanTypeError: an object without length or index.
        """
        kind = type(items)
        if not hasattr(kind, "__len__") or not hasattr(kind, "__getitem__") or isinstance(items, Mapping):
            raise PlanTypeError(
                f"from_indexable needs an object with __len__ and __getitem__ that takes integers, got {kind.__name__}"
            )
        try:
            count = len(items)
        except (TypeError, ValueError, OverflowError) as error:
            raise PlanTypeError(
                f"from_indexable needs an object that has a length, got {kind.__name__}: {error}"
            ) from error
        element = ElementType(None, ()) if spec is None else signature("from_indexable", spec)
        calls = parallel_calls("from_indexable", num_parallel_calls)
        return new(FromIndexable(items, items.__getitem__, count, element, calls))

    @staticmethod
    def range(*args: int, output_type: Any = "int64") -> Dataset:
        """Make a dataset of numbers, with the arguments of Python's `range`.

        Raises:
            PlanError: numbers that `output_type` cannot hold, or 2**63 or more of them.
            PlanTypeError: arguments that are not integers.
        """
        if not 1 <= len(args) <= 3:
            raise PlanError(f"range needs 1 to 3 arguments, got {len(args)}")
        numbers = [plain(arg) for arg in args]
        for arg, number in zip(args, numbers, strict=True):
            if not is_integer(number):
                raise PlanTypeError(f"range needs integers, got {arg!r}")
        start, stop, step = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers, 1)[:3]
        if step == 0:
            raise PlanError("range needs a step other than 0")
        dtype = number_type("range", "output_type", output_type)
        span = stop - start if step > 0 else start - stop
        count = -(-span // abs(step)) if span > 0 else 0
        if count:
            limits = np.iinfo(dtype) if dtype.kind != "f" else np.finfo(dtype)
            for number in (start, start + (count - 1) * step):
                if not int(limits.min) <= number <= int(limits.max):
                    raise PlanError(f"range needs numbers that {dtype} can hold, got {digits(number)}")
        if count >= 2**63:
            raise PlanError(f"range needs fewer than 2**63 numbers, got {digits(count)}")
        return new(Range(start, stop, step, dtype))

    @staticmethod
    def list_files(file_pattern: Any, shuffle: bool | None = None, seed: int | None = None) -> Dataset:
        """Make a dataset of file names.

        Args:
            file_pattern: one pattern or a list: ``*``, ``?``, ``[ab]`` within a folder, ``**`` for folders below it,
                ``{a,b}`` for alternatives. ``*`` matches names that start with a dot and follows links, as in tf.data;
                ``**`` enters neither such folders nor links to folders (``train/*/*.jpg`` does).
            shuffle: a new order in each epoch; default True. False sorts the names.
            seed: of that order, mixed with the chain's seed. Inputs of a `zip` that are listed with equal seeds stay in
                step; without seeds each has its own order.

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
            patterns.append(file_name("list_files", os.fsdecode(pattern)))
        hits: list[tuple[tuple[str, str], bool]] = []
        for pattern, matches in zip(patterns, at_once(expand, patterns), strict=True):
            if isinstance(matches, GpupipeError):
                raise matches
            hits += [(hit, pattern == hit[0]) for hit in matches]
        plain = [path for (path, _), explicit in hits if explicit]
        found = [hit for hit, explicit in hits if not explicit]
        found += zip(plain, stable_names(plain), strict=True)
        found.sort(key=lambda hit: (unescaped_name(hit[0]), hit))
        if not found:
            local = any(not is_url(pattern) and not os.path.isabs(pattern) for pattern in patterns)
            where = f"; the working directory is {shown_name(os.getcwd())}" if local else ""
            raise PlanError(f"list_files needs files, and none match {', '.join(map(shown_name, patterns))}{where}")
        seed = integer_or_none("list_files", "seed", seed)
        plan: Node = Files(tuple(path for path, _ in found), tuple(name for _, name in found))
        if shuffle is None or shuffle:
            plan = Shuffle(plan, len(found), seed)
        return new(plan)

    @staticmethod
    def load(
        path: str | bytes | os.PathLike[str],
        element_spec: Any = None,
        compression: str | None = None,
        reader_func: Callable[[Any], Any] | None = None,
        wait: bool = False,
    ) -> Dataset:
        """Read a dataset that `save` wrote: the elements with their identities.

        So random ops after it draw what they would draw after the chain that was saved; with a `reader_func`, if it
        keeps the order of the files (`interleave` and `flat_map` give the elements of each file new keys). A damaged
        element is one bad element, as in a TFRecord file; those after it are read.

        The elements have an index, for `ds[i]`, `split` and `shuffle(gp.ALL)`; `skip` and `shard` read nothing that
        they leave out, and a state nothing before it. Those that are compressed, in more than 16 files or saved without
        an index are read in order. An index takes 8 bytes an element, in memory while it is used.

        A NamedTuple or dataclass of the elements comes back as its class if the program has used that before, in an
        element or in `element_spec`; else as a NamedTuple of the same fields.

        Args:
            path: the folder.
            element_spec: the expected type, a structure of `TensorSpec`; None accepts any.
            compression: as given to `save`; None accepts any.
            reader_func: takes a dataset of datasets, one for each file, and returns the dataset to read, e.g.
                ``lambda files: files.shuffle(100).interleave(lambda x: x, cycle_length=4)``. By default the files (one,
                unless `save` was given a `shard_func`) are interleaved, 16 at a time.
            wait: wait until something is saved there; Ctrl-C ends the wait.

        Raises:
            MissingFileError: nothing was saved there; it is a DataError and a FileNotFoundError.
            DataError: the saved elements have another type or compression, or the folder is damaged.
            PlanTypeError: `reader_func` does not return a dataset.
        """
        require_no_symbols("load", path)
        if not isinstance(path, (str, bytes, os.PathLike)):
            raise PlanTypeError(f"load needs the path of a folder, got {path!r}")
        path = os.fsdecode(path)
        if is_url(path):
            raise PlanError(f"load needs a local path, got {path!r}; copy the folder here")
        if compression not in (None, "", "NONE", "GZIP"):
            raise PlanError(f'load needs compression None, "NONE" or "GZIP", got {compression!r}')
        wanted = None if element_spec is None else signature("load", element_spec)
        from ..load.save import read_saved

        folder = os.path.abspath(path)
        plans = read_saved(folder, wanted, compression, wait)
        if reader_func is None:
            return new(plans[0])
        if not callable(reader_func):
            raise PlanTypeError(f"load needs a function for reader_func, got {type(reader_func).__name__}")
        made = reader_func(new(SavedFiles(plans[1:], new)))
        if not isinstance(made, Chain):
            raise PlanTypeError(f"load needs a reader_func that returns a Dataset, got {type(made).__name__}")
        return cast("Dataset", made)

    @staticmethod
    def zip(*args: Any, datasets: Any = None) -> Dataset:
        """Combine the elements of several datasets; ends with the shortest.

        Zip what belongs together early: one shuffle after the zip moves pairs, and one call of a random op, such as
        ``ops.random_crop((image, mask), size)``, treats a pair alike. Inputs that are shuffled or listed with equal
        explicit seeds stay in step; random ops of the inputs draw independently, whatever their seeds.

        Args:
            args: datasets, or one structure (tuple, dict) of datasets.
            datasets: such a structure, as a keyword argument.

        Raises:
            PlanTypeError: no datasets, or a list of them.
        """
        if args and datasets is not None:
            raise PlanTypeError("zip takes datasets as arguments or by keyword, not both")
        given = datasets if datasets is not None else args[0] if len(args) == 1 else args
        if isinstance(given, Chain):
            return cast("Dataset", given)
        if given is None or given == ():
            raise PlanTypeError("zip needs at least one dataset")
        if isinstance(given, list):
            raise PlanTypeError("zip needs datasets in a tuple or dict, got a list; use a tuple")
        leaves, structure = flatten(given)
        for leaf in leaves:
            if not isinstance(leaf, Chain):
                raise PlanTypeError(f"zip needs datasets, got {type(leaf).__name__}")
        first: Dataset = leaves[0]
        return first._joined("zip", Zip(tuple(leaf.plan for leaf in leaves), structure), leaves)
