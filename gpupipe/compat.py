"""compat: the spellings of `tf.contrib.data` and TensorFlow 1 (2017-2018), for chains that were written then.

New chains do not need this module; every docstring says what to write today. Functions that take no dataset are
arguments of `Dataset.apply`::

    dataset = (
        gp.Dataset.list_files("train-*")
        .apply(gp.compat.parallel_interleave(gp.TFRecordDataset, cycle_length=8, sloppy=True))
        .apply(gp.compat.shuffle_and_repeat(10_000, seed=1))
        .apply(gp.compat.map_and_batch(parse, 256, drop_remainder=True))
        .prefetch(1)
    )
    iterator = gp.compat.make_one_shot_iterator(dataset)
    images, labels = iterator.get_next()

`random_transform`, also in `gpupipe.ops`, has the arguments of Keras' `ImageDataGenerator`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal

import numpy as np

from . import ops
from .arguments import integer, integer_or_none
from .dataset import Dataset, image_folder
from .errors import FunctionError, GpupipeError, PlanError, PlanTypeError, TraceError
from .graph.classify import name_of
from .graph.symbols import active_trace
from .ops.random_transform import random_transform
from .options import ALL, AUTOTUNE
from .spec import as_dtype, as_leaf, own, spec_of

__all__ = [
    "NotInitializedError",
    "OutOfRangeError",
    "ValueIterator",
    "image_dataset_from_directory",
    "make_initializable_iterator",
    "make_one_shot_iterator",
    "map_and_batch",
    "parallel_interleave",
    "py_function",
    "random_transform",
    "shuffle_and_repeat",
]


def __dir__() -> list[str]:
    return __all__


Transformation = Callable[[Dataset], Dataset]


class OutOfRangeError(GpupipeError):
    """`get_next` was called after the last element; TensorFlow raises tf.errors.OutOfRangeError there."""


class NotInitializedError(GpupipeError):
    """`get_next` of an initializable iterator was called before `initializer`."""


def map_and_batch(
    map_func: Callable[..., Any],
    batch_size: int,
    num_parallel_batches: int | None = None,
    drop_remainder: bool = False,
    num_parallel_calls: int | None = None,
) -> Transformation:
    """Apply a function to every element, and batch. Today: ``.map(fn, num_parallel_calls=...).batch(n)``.

    The two are always fused: a batch is one run of the graph.

    Args:
        map_func: as for `Dataset.map`.
        batch_size: rows of a batch.
        num_parallel_batches: batches in parallel in tf.data; here a Python function gets `Options.threads` threads
            whatever its value.
        drop_remainder: drop a short last batch.
        num_parallel_calls: threads for a Python function; excludes `num_parallel_batches`.

    Raises:
        PlanError: both numbers are given, or one is below 1.
    """
    who = "map_and_batch"
    if num_parallel_batches is not None and num_parallel_calls is not None:
        raise PlanError(f"{who} takes num_parallel_batches or num_parallel_calls, not both")
    if num_parallel_batches is not None:
        integer(who, "num_parallel_batches", num_parallel_batches, 1)
    calls = AUTOTUNE if num_parallel_calls is None else num_parallel_calls

    def transformation(dataset: Dataset) -> Dataset:
        return dataset.map(map_func, num_parallel_calls=calls).batch(batch_size, drop_remainder)

    return transformation


def parallel_interleave(
    map_func: Callable[..., Dataset],
    cycle_length: int,
    block_length: int = 1,
    sloppy: bool | None = False,
    buffer_output_elements: int | None = None,
    prefetch_input_elements: int | None = None,
) -> Transformation:
    """Interleave datasets with readers that run ahead. Today: ``.interleave(fn, ..., num_parallel_calls=...)``.

    Args:
        map_func: makes a dataset of each element.
        cycle_length: datasets open at a time.
        block_length: consecutive elements of one dataset.
        sloppy: take what is ready first.
        buffer_output_elements: elements >= 1 that each open dataset computes ahead, in its own thread; None leaves
            the read-ahead to `interleave`.
        prefetch_input_elements: input elements (file names) computed ahead, >= 0; None is 0.

    Raises:
        PlanError: a number out of range.
    """
    who = "parallel_interleave"
    for name, number, least in (
        ("buffer_output_elements", buffer_output_elements, 1),
        ("prefetch_input_elements", prefetch_input_elements, 0),
    ):
        if number is not None:
            integer(who, name, number, least)
    inner = map_func
    if buffer_output_elements is not None:
        inner = _Ahead(map_func, int(buffer_output_elements))

    def transformation(dataset: Dataset) -> Dataset:
        source = dataset.prefetch(prefetch_input_elements) if prefetch_input_elements else dataset
        return source.interleave(inner, cycle_length, block_length, AUTOTUNE, deterministic=not sloppy)

    return transformation


class _Ahead:
    """A function whose datasets get a prefetch."""

    def __init__(self, fn: Callable[..., Dataset], size: int) -> None:
        functools.update_wrapper(self, fn, updated=())  # its name and its arguments, for messages
        self.fn = fn
        self.size = size

    def __call__(self, *args: Any) -> Any:
        made = self.fn(*args)
        return made.prefetch(self.size) if isinstance(made, Dataset) else made  # `interleave` refuses anything else


def shuffle_and_repeat(buffer_size: int, count: int | None = None, seed: int | None = None) -> Transformation:
    """Shuffle and repeat. Today: ``.shuffle(n, seed=seed).repeat(count)``, which a rule fuses.

    Args:
        buffer_size: elements of the buffer.
        count: passes; None or a negative number is forever.
        seed: mixed with the chain's seed, as for `Dataset.shuffle`.
    """
    integer("shuffle_and_repeat", "buffer_size", buffer_size)
    integer_or_none("shuffle_and_repeat", "count", count)

    def transformation(dataset: Dataset) -> Dataset:
        return dataset.shuffle(buffer_size, seed=seed).repeat(count)

    return transformation


class ValueIterator:
    """An iterator like TensorFlow 1's: every `get_next` returns the next element.

    There is no session: a call returns values where TensorFlow 1 returned tensors for `session.run`. It is also a
    context manager and a Python iterator.

    Args:
        dataset: the dataset to iterate over.
        initialized: whether the first pass has started; otherwise `initializer` has to be called first.
    """

    def __init__(self, dataset: Dataset, initialized: bool) -> None:
        self._dataset = dataset
        self._items: Any = iter(dataset) if initialized else None

    @property
    def element_spec(self) -> Any:
        """The type of an element, a structure of `TensorSpec`."""
        return self._dataset.element_spec

    def initializer(self) -> None:
        """Start a pass, which is the next epoch; close the current one, if any."""
        self.close()
        self._items = iter(self._dataset)

    def get_next(self) -> Any:
        """Return the next element.

        Raises:
            OutOfRangeError: the pass is at its end.
            NotInitializedError: `initializer` was not called.
        """
        if self._items is None:
            raise NotInitializedError("get_next needs an iterator that has started; call initializer() first")
        try:
            return next(self._items)
        except StopIteration:
            raise OutOfRangeError("end of sequence: get_next was called after the last element") from None

    def state_dict(self) -> dict[str, Any]:
        """The state of this pass, as JSON; see `DatasetIterator.state_dict`. TensorFlow 1 kept it in a checkpoint.

        Raises:
            NotInitializedError: `initializer` was not called.
            StateError: the chain has no state; names the step.
        """
        if self._items is None:
            raise NotInitializedError("state_dict needs an iterator that has started; call initializer() first")
        state: dict[str, Any] = self._items.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any] | Sequence[dict[str, Any]], *, strict: bool | None = None) -> None:
        """Resume at a state: before the first `get_next` of a pass, or instead of `initializer()`.

        Args:
            state: see `DatasetIterator.load_state_dict`.
            strict: see there.

        Raises:
            StateError: the state does not fit this chain; see `DatasetIterator.load_state_dict`.
            PlanError: this pass has started already.
        """
        items = iter(self._dataset) if self._items is None else self._items
        items.load_state_dict(state, strict=strict)
        self._items = items

    def __iter__(self) -> ValueIterator:
        return self

    def __next__(self) -> Any:
        try:
            return self.get_next()
        except OutOfRangeError:
            raise StopIteration from None

    def __enter__(self) -> ValueIterator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the threads of the pass. Safe to call twice."""
        if self._items is not None:
            self._items.close()


def make_one_shot_iterator(dataset: Dataset) -> ValueIterator:
    """Make an iterator over one pass. Today: ``iter(dataset)``."""
    return ValueIterator(_checked("make_one_shot_iterator", dataset), initialized=True)


def make_initializable_iterator(dataset: Dataset, shared_name: str | None = None) -> ValueIterator:
    """Make an iterator that starts a pass at each call of `initializer()`. Today: ``iter(dataset)`` in each epoch.

    Args:
        dataset: the dataset to iterate over.
        shared_name: accepted for compatibility.
    """
    return ValueIterator(_checked("make_initializable_iterator", dataset), initialized=False)


def _checked(who: str, dataset: Any) -> Dataset:
    if not isinstance(dataset, Dataset):
        raise PlanTypeError(f"{who} needs a Dataset, got {type(dataset).__name__}")
    return dataset


def py_function(func: Callable[..., Any], inp: Sequence[Any], Tout: Any, name: str | None = None) -> Any:
    """Call a Python function, as `tf.py_function` inside `map`. A function that calls this runs as ordinary Python.

    Today: a plain function in `map`, or `ops.py_function` in the middle of a traced one.

    Args:
        func: called with the values of `inp`.
        inp: a list or tuple of values.
        Tout: the dtype of the result, or a list or tuple of dtypes; an empty one if the function returns nothing.
        name: accepted for compatibility.

    Returns:
        The result, with Python numbers in the dtype of `Tout`; a tuple where `Tout` is a list or tuple.

    Raises:
        FunctionError: a wrong number of results, or an array of another dtype.
        TraceError: called inside a traced function.
    """
    if active_trace() is not None:
        raise TraceError("compat.py_function needs values, got a traced function; use ops.py_function(fn, args, spec)")
    result = func(*inp)
    if not isinstance(Tout, (list, tuple)):
        return _typed(func, result, Tout)
    if not Tout:
        return ()
    results = tuple(result) if isinstance(result, (list, tuple)) else (result,)
    if len(results) != len(Tout):
        raise FunctionError(f"py_function needs {len(Tout)} results of {name_of(func)}, got {len(results)}")
    return tuple([_typed(func, value, dtype) for value, dtype in zip(results, Tout, strict=True)])


def image_dataset_from_directory(  # noqa: PLR0913 : the arguments are those of Keras
    directory: Any,
    labels: Literal["inferred"] | None = "inferred",
    label_mode: Literal["int", "categorical", "binary"] | None = "int",
    class_names: Sequence[str] | None = None,
    color_mode: Literal["grayscale", "rgb", "rgba"] = "rgb",
    batch_size: int | None = 32,
    image_size: tuple[int, int] = (256, 256),
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: Literal["training", "validation", "both"] | None = None,
    interpolation: str = "bilinear",
    follow_links: bool = False,
) -> Any:
    """Make batches of the images of a folder of classes, with the arguments of Keras' function of this name.

    Today: `image_folder(directory)`, then `shuffle(gp.ALL)`, a `map` that decodes, crops and augments, and `batch`.

    Here the shuffle is uniform over all files, and subsets are the same whatever is shuffled: each class is divided.

    Args:
        directory: see `image_folder`.
        labels: None for images alone.
        label_mode: "int": int32; "categorical": float32, one-hot; "binary": float32[B, 1] of 0 and 1; None: no labels.
        class_names: see `image_folder`.
        color_mode: "grayscale", "rgb" or "rgba": 1, 3 or 4 channels.
        batch_size: None for single images.
        image_size: height and width that images are resized to, without antialiasing and without keeping their ratio.
        shuffle: a new order in each epoch.
        seed: of the order.
        validation_split: see `image_folder`.
        subset: "both" gives two datasets, the training's and the validation's.
        interpolation: a method of `ops.resize`.
        follow_links: see `image_folder`.

    Shapes: ``float32[B,h,w,C]{NHWC}`` of 0 to 255, and the labels.

    Raises:
        PlanError: as `image_folder`, or an argument is none of those above.
    """
    who = "image_dataset_from_directory"
    if subset == "both":
        parts: tuple[Literal["training", "validation"], ...] = ("training", "validation")
        return tuple(
            image_dataset_from_directory(
                directory, labels, label_mode, class_names, color_mode, batch_size, image_size, shuffle, seed,
                validation_split, part, interpolation, follow_links,
            )
            for part in parts
        )  # fmt: skip
    channels = _channels(who, color_mode, labels, label_mode)
    folder = image_folder(
        directory, class_names=class_names, validation_split=validation_split, subset=subset, follow_links=follow_links
    )
    classes = len(folder.class_names)
    if label_mode == "binary" and classes != 2:
        raise PlanError(f"{who} needs two classes for label_mode='binary', got {classes}")

    mode = None if labels is None else label_mode
    load = _decoding(channels, image_size, interpolation, mode, classes)
    ds = folder.shuffle(ALL, seed=integer_or_none(who, "seed", seed)) if shuffle else folder
    ds = ds.map(load)
    if batch_size is None:
        return ds
    ds = ds.batch(integer(who, "batch_size", batch_size, 1))
    if mode == "binary":
        ds = ds.map(lambda pixels, label: (pixels, np.reshape(label, (-1, 1))))
    return ds.prefetch(2)


def _decoding(
    channels: int, size: Any, interpolation: str, mode: str | None, classes: int
) -> Callable[[Any, Any], Any]:
    """The function that makes an element of `image_dataset_from_directory` of a file and its class."""

    def load(image: Any, label: Any) -> Any:
        pixels = ops.resize(ops.decode_image(image, channels=channels), size, interpolation)
        pixels = ops.cast(pixels, np.float32)
        if mode is None:
            return pixels
        if mode == "categorical":
            return pixels, ops.one_hot(label, classes)
        return pixels, ops.cast(label, np.int32 if mode == "int" else np.float32)

    return load


def _channels(who: str, color_mode: str, labels: Any, label_mode: Any) -> int:
    """Check the modes of `image_dataset_from_directory`, and return the number of channels."""
    channels = {"grayscale": 1, "rgb": 3, "rgba": 4}.get(color_mode)
    if channels is None:
        raise PlanError(f"{who} needs color_mode 'grayscale', 'rgb' or 'rgba', got {color_mode!r}")
    if labels not in ("inferred", None):
        raise PlanError(f"{who} needs labels='inferred' or None, got {labels!r}; for others zip a dataset of labels")
    if label_mode not in ("int", "categorical", "binary", None):
        raise PlanError(f"{who} needs label_mode 'int', 'categorical', 'binary' or None, got {label_mode!r}")
    return channels


py_function.__gpupipe_python__ = True  # type: ignore[attr-defined]  # see `classify.classify`


def _typed(func: Callable[..., Any], value: Any, dtype: Any) -> Any:
    wanted = as_dtype(dtype)
    leaf = own(as_leaf(value))
    found = spec_of(leaf).dtype
    if found != wanted and wanted is not bytes and found is not bytes and type(value) in (bool, int, float, list):
        cast = np.asarray(leaf).astype(wanted)
        if np.array_equal(cast, leaf) or cast.dtype.kind == "f":
            leaf, found = (cast[()] if cast.ndim == 0 else cast), wanted
    if found != wanted:
        raise FunctionError(f"py_function needs {wanted} of {name_of(func)}, got {spec_of(leaf)}")
    return leaf
