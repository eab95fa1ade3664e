"""host_decode: images that the host decodes for DALI, so that which image is bad does not depend on the executor.

Two decoders never agree about every damaged byte, so one of them judges: the host's, which the NumPy executor uses. A
graph takes encoded images alone; what the host has decoded enters as a BMP, or as a PNG if it is yet to be turned,
which any decoder reads and none changes.
Three kinds of images come here, and photographs are none of them: what DALI refuses gets a second opinion; what
decoders read in several ways, TIFFs for example and progressive JPEGs that lack scans, is decoded by the host at once;
and of others the doubtful part is taken away: what follows the frame of a WebP, and of an EXIF block all but the
orientation.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import DataError, DecodeError
from ..extract.images.containers import read_in_several_ways, without_tail
from ..extract.images.decode import as_plain
from ..extract.images.headers import with_plain_orientation
from ..extract.images.scans import jpeg_read_in_several_ways
from ..graph.op import Array
from ..graph.values import Apply, Const
from ..log import logger
from ..threads import DaemonPool
from .program import Feed, Program

__all__ = ["HostDecoder", "Reading"]

_BATCHES = 2
"""Images of so many batches are remembered as good, and are held so long."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a program decodes one of its inputs.

    Attributes:
        gray: whether only its gray is wanted.
        exif_orientation: whether it is turned upright; None if it is in one place and is not in another.
        cropped: whether only a window of it may be decoded, in one place at least.
    """

    gray: bool
    exif_orientation: bool | None
    cropped: bool


class HostDecoder:
    """Decodes what DALI is not to decode itself, on threads of its own. They start with the first such image.

    Args:
        program: says which of its inputs are images, and how they are decoded.
        threads: that decode.
        batch_size: the largest batch.
        libjpeg: whether DALI decodes JPEGs with libjpeg, which it does on the CPU.
    """

    def __init__(self, program: Program, threads: int, batch_size: int, libjpeg: bool = True) -> None:
        self._threads = threads
        self._libjpeg = libjpeg
        self._most_good = _BATCHES * batch_size
        self._pool: DaemonPool | None = None
        self._said = False
        # Images that the host decodes, by their ids: those of a batch come again as soon as its bad ones are out.
        self._good: OrderedDict[int, Any] = OrderedDict()
        self.readings = _readings(program)

    def ready(self, n: int, rows: Sequence[Any] | Array, causes: dict[int, DataError]) -> Sequence[Any] | Array:
        """The images of input `n` as DALI gets them. Adds those that the host cannot decode to `causes`, by row."""
        reading = self.readings.get(n)
        if reading is None:
            return rows
        # Photographs are JPEGs, and all that is asked of one that is neither turned nor cropped is its first byte.
        turned = reading.exif_orientation is not False
        checked = turned or reading.cropped or not self._libjpeg
        odd = [i for i, row in enumerate(rows) if len(row) and (checked or row[0] != 0xFF)]
        if not odd:
            return rows
        out = list(rows)
        waiting = []
        for i in odd:
            try:
                if out[i][0] == 0xFF:
                    if jpeg_read_in_several_ways(out[i]):
                        waiting.append(i)
                    elif turned:
                        out[i] = with_plain_orientation(out[i]) or out[i]
                elif read_in_several_ways(out[i], reading.gray, turned):
                    waiting.append(i)
                elif out[i][0] == 0x52:
                    out[i] = without_tail(out[i]) or out[i]
            except DecodeError as error:
                causes[i] = error
        self._decode(out, waiting, reading, causes)
        return out

    def second_opinion(self, n: int, row: Any) -> bytes:
        """The image of input `n` that DALI refuses, as the host decodes it.

        Raises:
            DecodeError: the host refuses it, too.
        """
        reading = self.readings[n]
        return as_plain(row, reading.gray, reading.exif_orientation)

    def refused(self, feed: Feed, rows: Sequence[int]) -> dict[int, DecodeError]:
        """Those of some rows that the host cannot decode, by the first of their images that is bad."""
        waiting = []
        for row in rows:
            images = [(n, feed.values[n][row]) for n in self.readings]
            if not all(self._good.get(id(image)) is image for _, image in images):
                waiting.append((row, images, self._threaded().submit(self._decodes, images)))
        found = {}
        for row, images, future in waiting:
            try:
                future.result()
            except DecodeError as error:
                found[row] = error
                continue
            for _, image in images:
                self._good[id(image)] = image
        while len(self._good) > self._most_good * len(self.readings):
            self._good.popitem(last=False)
        return found

    def _decodes(self, images: Sequence[tuple[int, Any]]) -> None:
        """Decode the images of a row, for whether that works."""
        for n, image in images:
            self.second_opinion(n, image)

    def _threaded(self) -> DaemonPool:
        if self._pool is None:
            self._pool = DaemonPool(self._threads, "gpupipe-decode")
        return self._pool

    def close(self) -> None:
        """End the threads."""
        self._good.clear()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _decode(self, rows: list[Any], chosen: list[int], reading: Reading, causes: dict[int, DataError]) -> None:
        if not chosen:
            return
        if not self._said:
            self._said = True
            logger.info(
                "images that decoders read in several ways (TIFF, WebP of several parts, ...) are decoded on the host"
            )
        pool = self._threaded()
        futures = [pool.submit(as_plain, rows[i], reading.gray, reading.exif_orientation) for i in chosen]
        for i, future in zip(chosen, futures, strict=True):
            try:
                rows[i] = future.result()
            except DecodeError as error:
                causes[i] = error


def _readings(program: Program) -> dict[int, Reading]:
    """How each input is decoded."""
    calls = [value for value in program.values if isinstance(value, Apply) and value.op.decodes]
    out = {}
    for n, value in enumerate(program.inputs):
        ops: list[Any] = [call.op for call in calls if call.x[0] is value]
        ways = {bool(getattr(op, "exif_orientation", False)) for op in ops}
        if ops and not isinstance(value, Const):
            gray = all(getattr(getattr(op, "decoder", op), "channels", 3) == 1 for op in ops)
            cropped = any(hasattr(op, "decoder") for op in ops)
            out[n] = Reading(gray, ways.pop() if len(ways) == 1 else None, cropped)
    return out
