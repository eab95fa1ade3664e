"""image_buckets: images gathered by their size, which their headers tell, so that a graph can bring them to one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...classes import dataclass
from ...errors import DataError, FunctionError
from ...graph.host_values import header_size
from ...plan.image_buckets import Size, nearest_bucket, patches
from ..bad.found import ASKED
from ..element import Element, Hole
from ..maps.python_function import PythonFunction
from ..run import Context
from .group_by import Group, Grouping
from .stack import batch_of, stack_rows

__all__ = ["ImageSizes", "SizeBuckets"]

LARGEST = 1 << 31  # a size is int32


@dataclass(frozen=True, slots=True)
class ImageSizes:
    """Height and width of an element, from the header of its image or by the user's function.

    Attributes:
        who: the method, for messages.
        leaf: the number of the encoded image among the leaves.
        oriented: whether it is the size of the upright image.
        function: computes the size instead.
    """

    who: str
    leaf: int
    oriented: bool
    function: PythonFunction | None

    def __call__(self, element: Element, at: Context) -> Size:
        """Return (height, width).

        Raises:
            DataError: the image is bad, or the function failed or returned anything else.
        """
        if self.function is None:
            data = element[0][self.leaf]
            if not isinstance(data, bytes | memoryview):
                reason = f"{self.who} needs the bytes of an encoded image, got {type(data).__name__}"
                raise DataError(reason, stage=self.who)
            return header_size(data, oriented=self.oriented, max_pixels=at.run.settings.max_pixels)
        columns = self.function(element, at, ASKED)[0]
        if type(columns) is Hole:
            raise columns.error
        size = [n for column in columns for n in np.ravel(column).tolist()]
        if len(size) != 2 or any(type(n) is not int or not 0 < n < LARGEST for n in size):
            got = str(size[0] if len(size) == 1 else tuple(size))
            raise FunctionError(
                f"{self.who} needs a size_func that returns (height, width), integers >= 1, got {got}"[:200],
                stage=self.who,
            )
        return size[0], size[1]


@dataclass(frozen=True, slots=True)
class SizeBuckets(Grouping):
    """Makes batches of images that go to one bucket, or of a bounded number of pixels. Each gains height and width.

    Attributes:
        size_of_image: height and width of an element.
        buckets: the sizes, one of which each image is to have; without any, all images meet.
        sizes: the rows of a full batch of each bucket.
        rows: of a batch without buckets, at most.
        budget: pixels or patches of a batch without buckets, at most.
        patch: height and width of a patch; 1 counts pixels.
        names: of the leaves, for messages; those of height and width are the last.
        drop: leave out what is not a full batch at the end.
    """

    size_of_image: ImageSizes
    buckets: tuple[Size, ...]
    sizes: tuple[int, ...]
    rows: int
    budget: int
    patch: int
    names: tuple[str, ...]
    drop: bool

    @property
    def who(self) -> str:
        return self.size_of_image.who

    def key_of(self, element: Element, at: Context) -> tuple[int, tuple[Any, ...]]:
        """Return the bucket of an image, 0 without buckets; and as columns the bucket's height and width, or its own.

        Raises:
            DataError: the image is bad, or too large for a batch of its own.
        """
        height, width = self.size_of_image(element, at)
        if self.buckets:
            key = nearest_bucket(self.buckets, height, width)
            height, width = self.buckets[key]
            return key, (np.int32(height), np.int32(width))
        needed = patches(height, width, self.patch)
        if needed > self.budget:
            what, limit = ("pixels", "max_pixels") if self.patch == 1 else ("patches", "max_tokens")
            raise DataError(
                f"an image may fill a batch of {limit}={self.budget}, got {height}x{width} = {needed} {what}; raise "
                f"{limit}, or let size_func return the size that the image is resized to",
                stage=self.who,
            )
        return 0, (np.int32(height), np.int32(width))

    def size_of(self, key: int, element: Element, at: Context) -> int:
        """Return the rows of a batch of this bucket; without buckets the budget."""
        return self.sizes[key] if self.buckets else self.budget

    def cost_of(self, row: Element) -> int:
        """Return how much of the size of its group an image needs."""
        height, width = row[0][-2:]
        return 1 if self.buckets else patches(int(height), int(width), self.patch)

    def full(self, group: Group) -> bool:
        """Whether no image can be added to a batch."""
        return group.total >= group.size or len(group.rows) >= self.rows

    def give(self, key: int, rows: list[Element], full: bool, at: Context, serial: int) -> Element | None:
        """Return the batch, a hole if it does not stack, or None if it is left out."""
        if self.drop and not full:
            return None
        made = batch_of(rows, lambda i, column: self._leaf(i, column, rows))
        if type(made[0]) is Hole:
            made[0].error.stage = self.who
        return made

    def _leaf(self, i: int, column: tuple[Any, ...], rows: list[Element]) -> Any:
        stacked = stack_rows(column, rows, self.names[i], self.who)
        if self.buckets or i < len(self.names) - 2:
            return stacked
        return np.full_like(stacked, -(-stacked.max() // self.patch) * self.patch)
