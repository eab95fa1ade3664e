"""host_decode: images that the host decodes for DALI, so that which image is bad does not depend on the executor.

Two decoders never agree about every damaged byte, so one of them judges: the host's, which the NumPy executor uses.
DALI decodes what cameras and the web make, ordinary JPEGs and PNGs, of which all decoders make the same pixels
(`is_ordinary` in `extract/images/jpeg.py` and `png.py`). All else is decoded by the host, and so is what DALI refuses.
A graph takes encoded images alone; what the host has decoded enters as a BMP, or as a PNG if it is yet to be turned,
which any decoder reads and none changes. Of an EXIF block that DALI is to turn an image by, it gets the orientation and
nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import DataError, DecodeError
from ..extract.images import jpeg, png
from ..extract.images.decode import as_plain
from ..graph.op import Array
from ..graph.values import Apply, Const
from ..log import logger
from ..threads import DaemonPool
from .program import Feed, Program

__all__ = ["HostDecoder", "Reading"]


class Reading(NamedTuple):
    """How a program decodes one of its inputs.

    Attributes:
        gray: whether only its gray is wanted.
        exif_orientation: whether it is turned upright; None if it is in one place and is not in another.
    """

    gray: bool
    exif_orientation: bool | None


class HostDecoder:
    """Decodes what DALI is not to decode itself, on threads of its own. They start with the first such image.

    Args:
        program: says which of its inputs are images, and how they are decoded.
        threads: that decode.
    """

    def __init__(self, program: Program, threads: int) -> None:
        self._threads = threads
        self._pool: DaemonPool | None = None
        self._said = False
        self.readings = _readings(program)

    def ready(self, n: int, rows: Sequence[Any] | Array, causes: dict[int, DataError]) -> Sequence[Any] | Array:
        """The images of input `n` as DALI gets them. Adds those that the host cannot decode to `causes`, by row."""
        reading = self.readings.get(n)
        if reading is None:
            return rows
        turned = reading.exif_orientation is not False
        out, others = list(rows), []
        for i, row in enumerate(rows):
            if not len(row):
                continue  # refused where it is fed
            try:
                if row[0] == 0xFF and jpeg.is_ordinary(row):
                    out[i] = (turned and jpeg.with_plain_orientation(row)) or row
                elif row[0] != 0x89 or not png.is_ordinary(row, reading.gray, turned):
                    others.append(i)
            except DecodeError as error:
                causes[i] = error
        if others and not self._said:
            self._said = True
            logger.info("images other than ordinary JPEGs and PNGs are decoded on the host")
        for i, image in self._decoded({i: (as_plain, rows[i], *reading) for i in others}, causes).items():
            out[i] = image
        return out

    def second_opinion(self, n: int, row: Any) -> bytes:
        """The image of input `n` that DALI refuses, as the host decodes it.

        Raises:
            DecodeError: the host refuses it, too.
        """
        return as_plain(row, *self.readings[n])

    def refused(self, feed: Feed, rows: Sequence[int]) -> dict[int, DataError]:
        """Those of some rows that the host cannot decode, by the first of their images that is bad."""
        causes: dict[int, DataError] = {}
        self._decoded({row: (self._try, feed, row) for row in rows}, causes)
        return causes

    def _try(self, feed: Feed, row: int) -> None:
        for n in self.readings:
            self.second_opinion(n, feed.values[n][row])

    def _decoded(self, calls: dict[int, tuple[Any, ...]], causes: dict[int, DataError]) -> dict[int, Any]:
        """The results of some calls, made on the threads. Adds those that raise DecodeError to `causes`."""
        if calls and self._pool is None:
            self._pool = DaemonPool(self._threads, "gpupipe-decode")
        futures = {row: self._pool.submit(*call) for row, call in calls.items()} if self._pool else {}
        out = {}
        for row, future in futures.items():
            try:
                out[row] = future.result()
            except DecodeError as error:
                causes[row] = error
        return out

    def close(self) -> None:
        """End the threads."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


def _readings(program: Program) -> dict[int, Reading]:
    """How each input is decoded."""
    calls = [value for value in program.values if isinstance(value, Apply) and value.op.decodes]
    out = {}
    for n, value in enumerate(program.inputs):
        ops: list[Any] = [call.op for call in calls if call.x[0] is value]
        ways = {bool(getattr(op, "exif_orientation", False)) for op in ops}
        if ops and not isinstance(value, Const):
            gray = all(getattr(getattr(op, "decoder", op), "channels", 3) == 1 for op in ops)
            out[n] = Reading(gray, ways.pop() if len(ways) == 1 else None)
    return out
