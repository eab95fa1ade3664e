"""batches: the methods of `Dataset` that make batches, windows and groups, and take them apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arguments import checked_function, integer, parallel_calls
from ..errors import PlanError, PlanTypeError, TraceError
from ..graph.trace import require_no_symbols
from ..plan.batches import Batch, Bucketed, PaddedBatch, RaggedBatch, Rebatch, Unbatch
from ..plan.image_buckets import ImageBuckets, checked_buckets
from ..plan.node import ElementType
from ..plan.order import WHOLE
from ..plan.padding import padded_shapes as checked_shapes
from ..plan.padding import padding_values as checked_values
from ..plan.windows import GroupByWindow, Window
from ..ragged import splits_dtype
from ..spec import LEAF, Structure, TensorSpec
from .base import Chain, check_integer, new

if TYPE_CHECKING:
    from .. import Dataset

__all__ = ["Batches"]


class Batches(Chain):
    """Batches, windows and groups."""

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Dataset:
        """Stack `batch_size` consecutive elements.

        Args:
            batch_size: rows of a batch, >= 1.
            drop_remainder: drop a short last batch.
            num_parallel_calls: accepted for compatibility: a batch is one run of the graph over `Options.threads`.
            deterministic: accepted for compatibility: batches keep the order of their elements.

        Shapes: ``T[...] -> T[batch_size,...]`` for each leaf; a short last batch has fewer rows.
        """
        parallel_calls("batch", num_parallel_calls)
        return self._then(Batch(self.plan, integer("batch", "batch_size", batch_size, 1), bool(drop_remainder)))

    def padded_batch(
        self, batch_size: int, padded_shapes: Any = None, padding_values: Any = None, drop_remainder: bool = False
    ) -> Dataset:
        """Stack `batch_size` consecutive elements, each padded to one shape.

        Args:
            batch_size: rows of a batch.
            padded_shapes: a structure of shapes like the element; None or -1 in a shape is the largest of the batch.
                By default unknown dimensions are padded; None for a part of the structure does the same for that part.
            padding_values: one value, or a structure of values; the default, also for None, is 0, False or b"".
            drop_remainder: drop a short last batch.
        """
        size = integer("padded_batch", "batch_size", batch_size, 1)
        padding = _padding("padded_batch", self.plan.element, padded_shapes, padding_values)
        return self._then(PaddedBatch(self.plan, size, bool(drop_remainder), *padding))

    def unbatch(self) -> Dataset:
        """Split batches into their rows, the inverse of `batch`."""
        _need_rows("unbatch", self.plan.element)
        return self._then(Unbatch(self.plan))

    def rebatch(self, batch_size: int | Sequence[int], drop_remainder: bool = False) -> Dataset:
        """Change the size of batches: ``unbatch().batch(batch_size)``. Rows keep their identities.

        Args:
            batch_size: rows of a batch, >= 1; a list of sizes is cycled.
            drop_remainder: drop a short last batch.

        Raises:
            PlanError: a size below 1, or elements without rows.

        Example:
            >>> [batch.tolist() for batch in gp.Dataset.range(8).batch(4).rebatch([2, 1, 1])]
            [[0, 1], [2], [3], [4, 5], [6], [7]]
        """
        _need_rows("rebatch", self.plan.element)
        several = isinstance(batch_size, (list, tuple, np.ndarray)) and np.ndim(batch_size) == 1
        given: Any = batch_size if several else [batch_size]
        sizes = tuple(integer("rebatch", "batch_size", size, 1) for size in given)
        if not sizes:
            raise PlanError("rebatch needs at least one batch size, got an empty list")
        return self._then(Rebatch(self.plan, sizes, bool(drop_remainder)))

    def ragged_batch(self, batch_size: int, drop_remainder: bool = False, row_splits_dtype: Any = "int64") -> Dataset:
        """Stack `batch_size` consecutive elements that differ in their unknown dimensions, without padding.

        Leaves of known shape are stacked as by `batch`. A leaf with unknown dimensions becomes a `gpupipe.Ragged`,
        ragged in every dimension up to its last unknown one. The result of an ordinary Python function has only unknown
        dimensions, unless `map(fn, spec=...)` says more.

        Args:
            batch_size: rows of a batch, >= 1.
            drop_remainder: drop a short last batch.
            row_splits_dtype: "int64" or "int32".

        Example:
            >>> rows = gp.Dataset.range(4).flat_map(lambda n: gp.Dataset.range(n).batch(4))
            >>> [batch.to_list() for batch in rows.ragged_batch(3)]
            [[[0], [0, 1], [0, 1, 2]]]
        """
        size = integer("ragged_batch", "batch_size", batch_size, 1)
        splits = str(splits_dtype("ragged_batch", row_splits_dtype))
        return self._then(RaggedBatch(self.plan, size, bool(drop_remainder), splits))

    # ---- windows and groups

    def window(self, size: int, shift: int | None = None, stride: int = 1, drop_remainder: bool = False) -> Dataset:
        """Collect elements into datasets of `size` elements each.

        Window k starts at input element k * shift and holds every `stride`-th element from there. Each leaf becomes a
        dataset, and the structure stays outside: windows of ``(image, label)`` are pairs of datasets. A window has its
        own options and epochs, and can be iterated over any number of times; its elements keep their identities. An
        element that failed and is raised or skipped does not count as input: its window continues with the next one.
        For clips without such gaps, `on_error="replace"` keeps every index.

        Args:
            size: elements of a window, >= 1.
            shift: input elements between the starts of two windows; default: `size`.
            stride: input elements from one element of a window to the next, >= 1.
            drop_remainder: drop short windows; there is one for every start near the end.

        Example:
            >>> windows = gp.Dataset.range(5).window(3, shift=2, drop_remainder=True)
            >>> [clip.tolist() for clip in windows.flat_map(lambda w: w.batch(3))]
            [[0, 1, 2], [2, 3, 4]]
        """
        size = integer("window", "size", size, 1)
        shift = size if shift is None else integer("window", "shift", shift, 1)
        stride = integer("window", "stride", stride, 1)
        return self._then(Window(self.plan, size, shift, stride, bool(drop_remainder), new))

    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[..., Dataset],
        window_size: int | None = None,
        window_size_func: Callable[..., int] | None = None,
    ) -> Dataset:
        """Group elements by key, and yield the elements of `reduce_func(key, dataset)` for each group.

        A group is emitted when it is full, and its key starts a new one; at the end the remaining groups follow by
        ascending key. All functions run as ordinary Python.

        Args:
            key_func: returns the key of an element, one integer; a top-level tuple is unpacked into arguments.
            reduce_func: takes the key, int64 (uint64 if `key_func` returns that), and the dataset of the group's
                elements; returns a dataset.
            window_size: elements of a group, >= 1.
            window_size_func: returns that number for a key, instead of `window_size`; called when a group starts.

        Raises:
            PlanError: neither or both of `window_size` and `window_size_func`, or a size below 1.

        Example:
            >>> numbers = gp.Dataset.from_tensor_slices([5, 1, 3, 5, 1])
            >>> groups = numbers.group_by_window(lambda x: x, lambda key, group: group.batch(2), 2)
            >>> [group.tolist() for group in groups]
            [[5, 5], [1, 1], [3]]
        """
        if (window_size is None) == (window_size_func is None):
            raise PlanError("group_by_window needs either window_size or window_size_func")
        size = 0 if window_size is None else integer("group_by_window", "window_size", window_size, 1)
        self._gives_an_integer("group_by_window", "key_func", key_func)
        for fn, count in ((reduce_func, 2), (window_size_func, 1)):
            if fn is not None:
                checked_function("group_by_window", fn, _arguments(count))
                require_no_symbols("group_by_window", fn)
        return self._then(GroupByWindow(self.plan, key_func, reduce_func, size, window_size_func, new))

    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[..., Any],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
    ) -> Dataset:
        """Batch elements of similar length, so that little is padded.

        Bucket b holds the elements with ``bucket_boundaries[b - 1] <= length < bucket_boundaries[b]``. A batch is
        emitted when its bucket is full; at the end the remaining buckets follow by number.

        Args:
            element_length_func: returns the length of an element; a top-level tuple is unpacked into arguments.
            bucket_boundaries: ascending lengths.
            bucket_batch_sizes: rows of the batches of each bucket, >= 1; one size more than boundaries.
            padded_shapes: as in `padded_batch`.
            padding_values: as in `padded_batch`.
            pad_to_bucket_boundary: pad unknown dimensions to the bucket's upper boundary - 1, instead of the longest of
                the batch; an element as long as the last boundary is an error.
            no_padding: stack the elements as they are.
            drop_remainder: drop short batches.

        Raises:
            PlanError: boundaries that do not ascend, sizes below 1, or a wrong number of sizes.
        """
        who = "bucket_by_sequence_length"
        boundaries = tuple(integer(who, "bucket_boundaries", n) for n in bucket_boundaries)
        sizes = tuple(integer(who, "bucket_batch_sizes", n) for n in bucket_batch_sizes)
        if len(sizes) != len(boundaries) + 1:
            raise PlanError(
                f"{who} needs one batch size more than boundaries, got {len(sizes)} sizes and {len(boundaries)} "
                f"boundaries"
            )
        if any(a >= b for a, b in pairwise(boundaries)):
            raise PlanError(f"{who} needs bucket_boundaries that ascend, got {list(boundaries)}")
        if min(sizes) < 1:
            raise PlanError(f"{who} needs bucket_batch_sizes >= 1, got {list(sizes)}")
        if pad_to_bucket_boundary and not boundaries:
            raise PlanError(f"{who} needs bucket_boundaries to pad to, got none")
        self._gives_an_integer(who, "element_length_func", element_length_func)
        element = self.plan.element
        shapes = values = given = None
        if not no_padding:
            shapes, values, given = _padding(who, element, padded_shapes, padding_values)
        flags = bool(pad_to_bucket_boundary), not no_padding, bool(drop_remainder)
        return self._then(Bucketed(self.plan, element_length_func, boundaries, sizes, shapes, values, given, *flags))

    def bucket_by_image_size(
        self,
        buckets: Sequence[tuple[int, int]] | None = None,
        batch_size: int | None = None,
        *,
        max_pixels: int | None = None,
        max_tokens: int | None = None,
        patch_size: int | None = None,
        size_func: Callable[..., Any] | None = None,
        exif_orientation: bool = False,
        drop_remainder: bool = False,
    ) -> Dataset:
        """Batch encoded images by their size, which their headers tell: before anything is decoded.

        With `buckets`, an image goes to that of the nearest aspect ratio (the distance of two is the larger divided by
        the smaller; of buckets as near, the one nearest in area), and a batch holds the images of one bucket. Without,
        consecutive images fill a batch up to `max_pixels` or `max_tokens`, whatever their sizes.

        Elements gain ``(height, width)``, two int32: a size that every image of their batch can be brought to. It is
        that of the bucket; without buckets the largest height and the largest width in the batch, in whole patches. A
        tuple gains it as its last item, a dict as ``"size"``, anything else becomes a pair. In a traced
        function ops apply to each row, so a map after this step can hand it to `ops.resize`, `ops.random_crop` and
        others; subscripts are those of the batch: ``size[..., 0]`` is the height of each row.

        A batch leaves when it is full; what is left at the end follows by bucket. To train on several ranks, write
        ``.shard(ranks, rank, even="drop")`` after this step: every rank makes the same number of steps.

        Args:
            buckets: (height, width) of each, as `gpupipe.aspect_ratio_buckets` makes them.
            batch_size: rows of a batch, at most.
            max_pixels: pixels of a batch, at most: of its images; with `buckets` of its rows once they have their size.
            max_tokens: patches of `patch_size` x `patch_size` pixels that cover them, at most, instead of pixels.
            patch_size: height and width of a patch, in pixels.
            size_func: returns (height, width) of an element instead of the header of its only `bytes`, as ordinary
                Python; a top-level tuple is unpacked into arguments.
            exif_orientation: as for the decoder: take the size of the upright image.
            drop_remainder: drop what is not a full batch at the end.

        Raises:
            PlanError: no limit, a bucket larger than the limit, not one `bytes` in an element, or a bad size.
            DecodeError: while iterating: not a complete image of a known format; `Options.on_error` decides.
            DataError: while iterating: an image exceeds the limit of a batch without buckets.

        Example:
            >>> sizes = gp.Dataset.from_list([(40, 20), (10, 30), (20, 10), (25, 70)])
            >>> batches = sizes.bucket_by_image_size([(32, 16), (16, 32)], 2, size_func=lambda h, w: (h, w))
            >>> [(h.tolist(), w.tolist(), height[0], width[0]) for h, w, (height, width) in batches]
            [([40, 20], [20, 10], np.int32(32), np.int32(16)), ([10, 25], [30, 70], np.int32(16), np.int32(32))]
        """
        who = "bucket_by_image_size"
        sizes = () if buckets is None else checked_buckets(who, buckets)
        rows = WHOLE if batch_size is None else integer(who, "batch_size", batch_size, 1)
        limit = "max_pixels" if max_tokens is None else "max_tokens"
        given = max_pixels if max_tokens is None else max_tokens
        if (max_tokens is None) != (patch_size is None) or None not in (max_pixels, max_tokens):
            raise PlanError(f"{who} needs max_pixels, or max_tokens with patch_size")
        if given is None and (not sizes or rows == WHOLE):
            raise PlanError(f"{who} needs buckets and a batch_size, or the limit max_pixels or max_tokens")
        budget = 0 if given is None else integer(who, limit, given, 1)
        patch = 1 if patch_size is None else integer(who, "patch_size", patch_size, 1)
        if size_func is not None:
            checked_function(who, size_func, self.plan.element)
            require_no_symbols(who, size_func)
        node = ImageBuckets(
            self.plan, sizes, rows, budget, patch, size_func, bool(exif_orientation), bool(drop_remainder)
        )
        for size, count in zip(sizes, node.sizes, strict=True):
            if count < 1:
                raise PlanError(f"{who} needs {limit} for one row of each bucket, got {budget} for a bucket of {size}")
        return self._then(node)

    def _gives_an_integer(self, who: str, name: str, fn: Callable[..., Any]) -> None:
        """Check a function that has to return one integer, as far as that is known before it runs."""
        checked_function(who, fn, self.plan.element)
        require_no_symbols(who, fn)
        if not self.plan.element.known or self.plan.element.batched:
            return
        try:
            graph = self._trace(who, fn)
        except TraceError:  # it needs a value, which is fine: it runs as ordinary Python
            return
        check_integer(who, name, fn, graph)


def _arguments(count: int) -> ElementType:
    """The type of an element that a function takes as `count` arguments."""
    return ElementType(Structure(tuple, (), (LEAF,) * count, count), (TensorSpec(None, None),) * count)


def _padding(who: str, element: ElementType, shapes: Any, values: Any) -> tuple[Any, Any, Any]:
    """The shapes and values of a padding, checked as far as the element is known, and as given where it is not.

    Raises:
        PlanTypeError: a leaf cannot be padded.
    """
    for spec in element.specs:
        if type(spec) is not TensorSpec:
            hint = "; use flat_map(lambda w: w) first" if element.structure is not None and spec.shape == () else ""
            raise PlanTypeError(f"{who} needs arrays, numbers or bytes, got a {spec}{hint}")
    given = None if element.known else (shapes, values)
    if element.structure is None:
        return None, None, given
    return checked_shapes(shapes, element), checked_values(values, element), given


def _need_rows(who: str, element: ElementType) -> None:
    """Refuse elements that are not batches."""
    for spec in element.specs:
        if spec.shape == ():
            raise PlanError(f"{who} needs leaves with a first dimension, got the scalar {spec}")
    sizes = {spec.shape[0] for spec in element.specs if spec.shape and spec.shape[0] is not None}
    if len(sizes) > 1:
        raise PlanError(f"{who} needs leaves of one length, got {' and '.join(map(str, sorted(sizes)))}")
