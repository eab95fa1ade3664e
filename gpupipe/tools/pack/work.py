"""work: which image goes where, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gpupipe.errors import DataError, shown_name
from gpupipe.extract.examples.encode import encode_example
from gpupipe.extract.records.framing import OVERHEAD
from gpupipe.flow.order.permutation import Permutation
from gpupipe.random import hash64, mix64
from gpupipe.tools.pack.budget import is_decoded
from gpupipe.tools.pack.image import as_stored
from gpupipe.tools.pack.inputs import Inputs
from gpupipe.tools.pack.journal import Skipped

__all__ = ["Record", "Work", "refusal"]

Record = tuple[bytes, bool]
"""A serialized example, and whether its image is decoded."""


def refusal(error: DataError) -> DataError:
    """The error of a bad image, with what to do about it."""
    text = f"{error.reason}; mend or remove the image, or leave such images out with --on-error skip"
    return type(error)(text, file=error.file)


class Work:
    """Which image goes where, and what becomes of it.

    Attributes:
        decoded: how many of the images are decoded, at equal distances in the order of the shards.
    """

    def __init__(
        self,
        inputs: Inputs,
        shards: int,
        seed: int,
        shorter: int | None,
        quality: int | None,
        skip: bool,
        decoded: bool,
    ) -> None:
        self.inputs = inputs
        self.decoded = len(inputs) if decoded else 0
        self._order = Permutation(len(inputs), mix64(hash64("pack"), seed))(np.arange(len(inputs)))
        self._bounds = [shard * len(inputs) // shards for shard in range(shards + 1)]
        self._shorter, self._quality, self._skip = shorter, quality, skip

    def places_of(self, shard: int) -> range:
        """The places of the images of a shard in the order of all."""
        return range(self._bounds[shard], self._bounds[shard + 1])

    def is_decoded(self, place: int) -> bool:
        """Whether the image at a place is stored decoded."""
        return is_decoded(place, self.decoded, len(self.inputs))

    def prepared(self, read: Callable[[int], bytes], places: Sequence[int]) -> list[Record | Skipped]:
        """Make the records of the images at some places."""
        return [self._record(read, place, self.is_decoded(place)) for place in places]

    def measured(self, read: Callable[[int], bytes], places: Sequence[int]) -> list[tuple[int, int]]:
        """The bytes of the records of the images at some places, encoded and decoded; 0 of a form that is bad."""
        return [(self._size(read, place, False), self._size(read, place, True)) for place in places]

    def _size(self, read: Callable[[int], bytes], place: int, decoded: bool) -> int:
        try:
            return len(self._example(read, int(self._order[place]), decoded)) + OVERHEAD
        except DataError:  # `prepared` says so of those that are to be stored
            return 0

    def _record(self, read: Callable[[int], bytes], place: int, decoded: bool) -> Record | Skipped:
        i = int(self._order[place])
        try:
            return self._example(read, i, decoded), decoded
        except DataError as error:
            error.at(file=self.inputs.where(i))
            if not self._skip:
                raise refusal(error) from error
            return Skipped(shown_name(self.inputs.where(i)), error.reason)

    def _example(self, read: Callable[[int], bytes], i: int, decoded: bool) -> bytes:
        """The serialized example of an image.

        Raises:
            DataError: the image is bad.
        """
        inputs = self.inputs
        stored = as_stored(read(i), self._shorter, None if decoded else self._quality)
        features: dict[str, bytes | int] = {
            "image/encoded": stored.encoded,
            "image/format": stored.format.encode(),
            "image/filename": _text(inputs.names[i]),
            "image/height": stored.height,
            "image/width": stored.width,
        }
        if inputs.labels is not None:
            label = features["image/class/label"] = inputs.labels[i]
            if 0 <= label < len(inputs.classes):
                features["image/class/text"] = _text(inputs.classes[label])
        return encode_example(features)


def _text(name: str) -> bytes:
    return name.encode(errors="surrogateescape")
