"""host_decode: decode images on the host for DALI, so that which images are bad does not depend on the executor.

Two decoders never agree on every damaged byte, so one of them decides: the host's, which the NumPy executor uses. DALI
decodes what cameras and the web make, ordinary JPEGs and PNGs, and plain BMPs, for which all decoders give the same
pixels (`is_ordinary` in `extract/images/jpeg.py`, `png.py` and `bmp.py`). The host decodes all others, and those that
DALI refuses. On a GPU a JPEG's tables have to be complete and to agree, too: libjpeg refuses damaged ones, while the
GPU's decoders may not, or fail on other images of their batch as well. A graph takes only encoded images, so an image
that the host has decoded is fed as a BMP, or as a PNG if it is still to be rotated: any decoder reads these without a
change. An EXIF block by which DALI is to rotate an image is reduced to the orientation. A window of one column is the
host's, too: libjpeg interpolates its colours from that column alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError, DecodeError
from ..extract.images import bmp, jpeg, png
from ..extract.images.decode import as_plain, damage_of
from ..graph.op import Array
from ..graph.values import Apply, Const
from ..log import logger
from ..threads import DaemonPool
from .program import Feed, Program

__all__ = ["HostDecoder", "Reading"]


class Reading(NamedTuple):
    """How a program decodes one of its inputs.

    Attributes:
        gray: whether it is decoded only to gray.
        exif_orientation: whether it is rotated upright; None if only some of its decoders do so.
    """

    gray: bool
    exif_orientation: bool | None


class HostDecoder:
    """Decodes images that DALI must not decode, on its own threads, which start with the first such image.

    Args:
        program: its decoders say which inputs are images.
        threads: number of threads.
        on_gpu: whether DALI decodes on a GPU, with other decoders than libjpeg.
    """

    def __init__(self, program: Program, threads: int, on_gpu: bool = False) -> None:
        self._threads, self._on_gpu = threads, on_gpu
        self._pool: DaemonPool | None = None
        self._said = False
        self.readings = _readings(program)
        self._shapes = _shapes(program)

    def ready(self, n: int, feed: Feed, causes: dict[int, DataError]) -> Sequence[Any] | Array:
        """The images of input `n` as DALI gets them. Adds the errors of bad images to `causes`, by row."""
        reading, rows = self.readings.get(n), feed.values[n]
        if reading is None:
            return rows
        upright = reading.exif_orientation is not False
        out, others, columns = list(rows), [], self._columns(n, feed)
        for i, row in enumerate(rows):
            if not len(row):
                continue  # `tensors_of` refuses it
            try:
                image = None if i in columns else self._for_graph(row, reading.gray, upright)
                if image is None:
                    others.append(i)
                else:
                    out[i] = image
            except DecodeError as error:
                causes[i] = error.kept()
        if others and not self._said:
            self._said = True
            logger.info("images other than ordinary JPEGs, PNGs and BMPs are decoded on the host")
        for i, image in self._decoded({i: (as_plain, rows[i], *reading) for i in others}, causes).items():
            out[i] = image
        return out

    def _columns(self, n: int, feed: Feed) -> set[int]:
        """The rows of which a window of one column is decoded."""
        found = set[int]()
        for value in self._shapes.get(n, ()):
            shapes = np.asarray(feed.values[value] if isinstance(value, int) else [value.value] * feed.size)
            found.update(np.flatnonzero(shapes[:, 1] == 1).tolist())
        return found

    def _for_graph(self, row: Any, gray: bool, upright: bool) -> Any:
        """An image as DALI gets it; None if the host decodes it."""
        if row[0] == 0xFF:
            if not jpeg.is_ordinary(row):
                return None
            if not (self._on_gpu or upright):
                return row
            segments = jpeg.jpeg_segments(row)
            if self._on_gpu and not jpeg.has_whole_header(row, segments):
                return None
            return (upright and jpeg.with_plain_orientation(row, segments)) or row
        ordinary = png.is_ordinary(row, gray, upright) if row[0] == 0x89 else bmp.is_ordinary(row, gray)
        return row if ordinary else None

    def second_opinion(self, n: int, row: Any) -> bytes:
        """An image of input `n`, decoded by the host because DALI refuses it or decodes it otherwise.

        Raises:
            DecodeError: the host refuses it too.
        """
        return as_plain(row, *self.readings[n])

    def damaged(self, feed: Feed, rows: Iterable[int]) -> dict[int, list[int]]:
        """The inputs with a JPEG whose compressed data is damaged, so that its pixels depend on the decoder, by row."""
        found = self._decoded({row: (self._damaged, feed, row) for row in rows}, {})
        return {row: inputs for row, inputs in found.items() if inputs}

    def _damaged(self, feed: Feed, row: int) -> list[int]:
        return [n for n in self.readings if damage_of(feed.values[n][row])]

    def refused(self, feed: Feed, rows: Sequence[int]) -> dict[int, DataError]:
        """The rows that the host cannot decode, each with the error of its first bad image."""
        causes: dict[int, DataError] = {}
        self._decoded({row: (self._try, feed, row) for row in rows}, causes)
        return causes

    def _try(self, feed: Feed, row: int) -> None:
        for n in self.readings:
            self.second_opinion(n, feed.values[n][row])

    def _decoded(self, calls: dict[int, tuple[Any, ...]], causes: dict[int, DataError]) -> dict[int, Any]:
        """The results of some calls, run on the threads. Adds DecodeErrors to `causes`."""
        if calls and self._pool is None:
            self._pool = DaemonPool(self._threads, "gpupipe-decode")
        futures = {row: self._pool.submit(*call) for row, call in calls.items()} if self._pool else {}
        out = {}
        for row, future in futures.items():
            try:
                out[row] = future.result()
            except DecodeError as error:
                causes[row] = error.kept()
        return out

    def close(self) -> None:
        """Stop the threads."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


def _shapes(program: Program) -> dict[int, list[int | Const]]:
    """The inputs that hold the sizes of windows, or the same size for all, by the input that is decoded."""
    found: dict[int, list[int | Const]] = {}
    for call in program.values:
        if isinstance(call, Apply) and call.op.decodes and call.op.parameters == ("start", "shape"):
            shape = call.params[1]
            which = shape if isinstance(shape, Const) else program.inputs.index(shape)
            found.setdefault(program.inputs.index(call.x[0]), []).append(which)
    return found


def _readings(program: Program) -> dict[int, Reading]:
    calls = [value for value in program.values if isinstance(value, Apply) and value.op.decodes]
    out = {}
    for n, value in enumerate(program.inputs):
        ops: list[Any] = [call.op for call in calls if call.x[0] is value]
        ways = {bool(getattr(op, "exif_orientation", False)) for op in ops}
        if ops and not isinstance(value, Const):
            gray = all(getattr(getattr(op, "decoder", op), "channels", 3) == 1 for op in ops)
            out[n] = Reading(gray, ways.pop() if len(ways) == 1 else None)
    return out
