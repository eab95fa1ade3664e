"""proof: check that the pixels from DALI's decoders belong to the images, without decoding every image again.

GPU decoders have returned black, unfinished and swapped images without an error (NVIDIA/nvImageCodec#50,
pytorch/torchcodec#1634). DALI does not expose a buffer before decoding into it, so it cannot be marked. Instead every
row is compared with two facts of its file: the size in its header, and the mean of its first 8x8 pixels, which the host
reads without decoding (`first_blocks.py`). The graph returns those pixels and 64 more, on a grid over the image, so
that rows of the grid also show parts left black. If a row disagrees, the host decodes the image, and only if the
samples differ from that is the row reported: neither a black image nor a different formula for gray is a false alarm.

Among JPEGs, the only images that a GPU decodes here, it finds:

- a row of another size, always;
- a row that was not written, or swapped with one of the same size, unless the mean of its first 8x8 pixels is within 4
  of 255 of the right one, as for about 1 of 30 photographs;
- a row that is black, or has a black band, at the bottom for example, while its first pixels agree.

It costs some microseconds per row, and one decoding on the host for each suspicious row that turns out right. Such
false alarms are rare among photographs, but some datasets are full of them: images with black borders, or colours so
saturated that the means differ. So after 8 false alarms for one reason (size, mean or black) the host checks only 1
such row per 768 decoded rows (at most 1 of 256 for all reasons), alternately the most suspicious one and any other, and
logs this once. A wrong row does not count, so a decoder that keeps returning wrong rows is found among any images,
within the first hundreds of them; a single wrong row may then be missed.

A row of a JPEG whose compressed data is damaged (libjpeg decodes it with a warning) is not reported: every decoder
makes something else of it, so the batch runs again with the host's pixels (`DaliExecutor`). If its samples agree by
chance, the card's pixels stay.

It does not find a lower part with an older image, nor damage between the samples; `Options.verify` does. A JPEG whose
first code tells nothing (colours by Adobe's segment or named R, G and B, arithmetic coding, a progressive one of a
quality below 25 or so) and one that is rotated have no known mean, so only size and black are checked. Of other formats
only the size is compared, since DALI decodes them on the host too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...classes import dataclass
from ...errors import DecodeError
from ...extract.images.decode import UNBOUNDED, decode
from ...extract.images.first_blocks import facts_of_jpegs
from ...extract.images.headers import read_header
from ...graph.op import Array
from ...graph.values import Apply, Const
from ...log import logger
from ..program import Feed, Program

__all__ = ["BLOCK", "TOLERANCE", "TOLERANCE_SIMPLE", "Decoder", "Prover", "sampled"]

BLOCK = 8
"""Side of a JPEG block in pixels; also rows and columns of the grid, whose samples lie at (2 i + 1) / 16 of each side.

A power of 2, so that DALI's nearest neighbour and integer arithmetic select the same pixels."""


TOLERANCE = 8.0
"""Largest mean difference (of 255) from libjpeg over 8x8 pixels, or 8 pixels of the grid.

libjpeg's own fast inverse transform differs from its exact one by up to 7.6 (250 photographs); wrong images differ by
tens."""


TOLERANCE_SIMPLE = 16.0
"""`TOLERANCE` without fancy upsampling: libjpeg's simple upsampling differs by up to 11.7 along colour edges."""


_AGREES = 4.0
"""Largest difference of the first block's mean, in levels, that is not suspicious; in 250 photographs it is 1.6."""


_FALSE_ALARMS = 8
"""False alarms for one reason after which the host checks fewer such rows."""


_ROWS_A_LOOK = 768
"""Decoded rows per further check for one reason; the three reasons cost about 1 ms per 256 rows."""


_WEIGHTS = np.array([0.299, 0.587, 0.114], np.float32)


@dataclass(frozen=True, slots=True)
class Decoder:
    """One decoder of a program, whose results are checked.

    Attributes:
        name: of the op, as the user wrote it.
        image: index of the input that it decodes.
        channels: of its result, 1 or 3.
        upright: whether it applies the EXIF orientation.
        window: indices of the inputs with a region's start and size; None if it decodes whole images.
    """

    name: str
    image: int
    channels: int
    upright: bool
    window: tuple[int, int] | None

    @classmethod
    def of(cls, program: Program, call: Apply, windowed: bool) -> Decoder:
        """Describe a decoder of a program."""
        op: Any = getattr(call.op, "decoder", call.op)
        start, shape = (program.inputs.index(param) for param in call.params) if windowed else (0, 0)
        return cls(
            call.op.stage,
            program.inputs.index(call.x[0]),
            1 if getattr(op, "channels", 3) == 1 else 3,
            bool(getattr(op, "exif_orientation", False)),
            (start, shape) if windowed else None,
        )

    def on_host(self, program: Program, feed: Feed, row: int) -> Array | None:
        """The image that it should have returned for a row; None if the host cannot decode it."""
        try:
            image = decode(_row(program, feed, self.image, row), self.channels, self.upright, UNBOUNDED)
        except DecodeError:
            return None
        if self.window is not None:
            (y, x), (h, w) = (np.asarray(_row(program, feed, n, row)).tolist() for n in self.window)
            image = image[y : y + h, x : x + w]
        return image


class _Suspicion:
    """Limits how many rows that are suspicious for one reason the host checks.

    Args:
        what: the reason, for the log.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._left = float(_FALSE_ALARMS)
        self._batches = self._right = 0
        self._told = False

    def of(self, size: int, rows: Array, strength: Array) -> Iterator[int]:
        """The rows to check, until too many of them are `dismissed`.

        Args:
            size: of the batch.
            rows: int64[N], indices of the suspicious rows.
            strength: of the suspicion, for every row of the batch.
        """
        self._left = min(self._left + size / _ROWS_A_LOOK, _FALSE_ALARMS)
        if not len(rows) or self._left < 1:
            return
        # Alternate between the most suspicious and any, lest those that always look worst hide the others.
        rows = np.roll(rows, self._batches // 2)
        if self._batches % 2 == 0:
            rows = rows[strength[rows].argsort(kind="stable")[::-1]]
        self._batches += 1
        for row in rows.tolist():
            if self._left < 1:
                return
            yield row

    def dismissed(self, name: str) -> None:
        """Count a row that was right; `name` is the decoder's."""
        self._left -= 1
        self._right += 1
        if self._left < 1 and not self._told:
            self._told = True
            logger.info(
                "%s: %d images %s, yet equal what the host decodes; from now on the host checks one such image per %d "
                "decoded ones instead of each; Options(verify=) compares images whatever they look like",
                name,
                self._right,
                self._what,
                _ROWS_A_LOOK,
            )


class Prover:
    """Compares the results of decoders with what the host knows of the images.

    Args:
        program: the program with the decoders.
        tolerance: of a mean over 8x8 pixels, see `TOLERANCE`.
    """

    def __init__(self, program: Program, tolerance: float) -> None:
        self._program, self._tolerance = program, tolerance
        self._sizes = _Suspicion("have another size than their files say")
        self._means = _Suspicion("have first 8x8 pixels of another mean than their files say")
        self._blacks = _Suspicion("are black, or have black bands")

    def wrong_samples(self, decoder: Decoder, feed: Feed, samples: Array, shapes: Array) -> dict[int, str]:
        """The rows whose samples are not those of their images, and how they differ.

        Args:
            decoder: the decoder.
            feed: its batch.
            samples: uint8[B,16,8,C], the grid, then the first block.
            shapes: int64[B,3], of the decoded images.
        """
        sizes, means, jpeg = self._known(decoder, feed)
        block = _mean_pixels(samples[:, BLOCK:])
        gray = block[:, 0] if decoder.channels == 1 else block @ _WEIGHTS
        dark = ~samples[:, :BLOCK].any(axis=(2, 3)) & jpeg[:, None]
        other = ((shapes[:, :2] != sizes) & (sizes > 0)).any(axis=1)
        with np.errstate(invalid="ignore"):  # NaN if the mean is unknown
            gaps = np.abs(gray - np.clip(means, 0, 255))
            odd = gaps > _AGREES
        bands = dark.sum(axis=1)
        found: dict[int, str] = {}
        seen = np.zeros(feed.size, bool)
        for suspicion, rows, strength in (
            (self._sizes, other, gaps), (self._means, odd, gaps), (self._blacks, bands > 0, bands)
        ):  # fmt: skip
            for row in suspicion.of(feed.size, np.flatnonzero(rows & ~seen), strength):
                seen[row] = True
                expected = decoder.on_host(self._program, feed, row)
                text = "" if expected is None else self._unlike_samples(samples[row], tuple(shapes[row]), expected)
                if text:
                    found[row] = text
                else:
                    suspicion.dismissed(decoder.name)
        return dict(sorted(found.items()))

    def _known(self, decoder: Decoder, feed: Feed) -> tuple[Array, Array, Array]:
        """The sizes of all rows, 0 if unknown, the means of their first blocks, NaN if unknown, and which are JPEGs."""
        images = _rows(self._program, feed, decoder.image)
        if decoder.window is not None:
            sizes = np.array([np.asarray(size) for size in _rows(self._program, feed, decoder.window[1])])
            return sizes, np.full(feed.size, np.nan, np.float32), np.array([data[0] == 0xFF for data in images])
        sizes, means = np.zeros((feed.size, 2), np.int64), np.full(feed.size, np.nan, np.float32)
        jpeg = np.array([data[0] == 0xFF for data in images])
        plain = jpeg.copy()
        for row in range(feed.size) if decoder.upright else np.flatnonzero(~jpeg).tolist():
            try:
                header = read_header(images[row], orientation=decoder.upright)
            except DecodeError:  # a format that the host does not know
                jpeg[row] = plain[row] = False
                continue
            sizes[row] = header.size
            plain[row] &= header.orientation == 1
        chosen = np.flatnonzero(plain)
        sizes[chosen], means[chosen] = facts_of_jpegs([images[row] for row in chosen.tolist()])
        jpeg[chosen] = sizes[chosen].any(axis=1)
        return sizes, means, jpeg

    def _unlike_samples(self, samples: Array, shape: tuple[int, ...], expected: Array) -> str:
        """How the samples of a row differ from those of its image; "" if they do not."""
        if shape[:2] != expected.shape[:2]:
            return f"it is {shape[0]}x{shape[1]} pixels and not {expected.shape[0]}x{expected.shape[1]}"
        off = np.abs(samples.astype(np.int16) - sampled(expected))
        lines = off[:BLOCK].mean(axis=(1, 2))
        worst = max(float(lines.max()), float(off[BLOCK:].mean()))
        if worst <= self._tolerance:
            return ""
        black = " (it is black there)" if not samples[:BLOCK][lines > self._tolerance].any() else ""
        part = f"{int((lines > self._tolerance).sum())} of 8 lines of samples" if lines.max() > self._tolerance else ""
        return f"{part or 'its first 8x8 pixels'} differ by up to {worst:.0f} of 255 on average{black}"

    def wrong_image(self, decoder: Decoder, feed: Feed, row: int, image: Array) -> str:
        """How a decoded image differs from the host's; "" if it does not, or if the host cannot decode it."""
        expected = decoder.on_host(self._program, feed, row)
        if expected is None:
            return ""
        if image.shape != expected.shape:
            return f"it is {image.shape[0]}x{image.shape[1]} pixels and not {expected.shape[0]}x{expected.shape[1]}"
        means = _tiles(np.abs(image.astype(np.int16) - expected))
        wrong = means > self._tolerance
        if not wrong.any():
            return ""
        y, x = (BLOCK * int(n) for n in np.unravel_index(int(means.argmax()), means.shape))
        return (
            f"{np.count_nonzero(wrong) / wrong.size:.1%} of its 8x8 tiles differ by more than {self._tolerance:g} of "
            f"255 on average, that at row {y} and column {x} by {means.max():.0f}"
        )


def sampled(image: Array) -> Array:
    """The samples that the graph returns of an image: uint8[H,W,C] -> uint8[16,8,C], the grid, then the first block.

    Pixels of the block beyond the image are 0.
    """
    odd = 2 * np.arange(BLOCK) + 1
    height, width, channels = image.shape
    grid = image[odd * height // (2 * BLOCK)][:, odd * width // (2 * BLOCK)]
    block = np.zeros((BLOCK, BLOCK, channels), np.uint8)
    first = image[:BLOCK, :BLOCK]
    block[: first.shape[0], : first.shape[1]] = first
    return np.concatenate([grid, block])


def _tiles(off: Array) -> Array:
    """The mean of every 8x8 tile of int16[H,W,C]; tiles at the lower and right edge may be smaller."""
    height, width, channels = off.shape
    tops, lefts = np.arange(0, height, BLOCK), np.arange(0, width, BLOCK)
    sums = np.add.reduceat(np.add.reduceat(off.sum(axis=2, dtype=np.int64), tops, axis=0), lefts, axis=1)
    pixels = np.outer(np.diff(tops, append=height), np.diff(lefts, append=width))
    means: Array = sums / (pixels * channels)
    return means


def _mean_pixels(blocks: Array) -> Array:
    """The mean pixel of each block: uint8[B,8,8,C] -> float32[B,C]. As one product: exact, and ten times faster."""
    channels = blocks.shape[3]
    flat = blocks.reshape(len(blocks), -1).astype(np.float32)
    means: Array = flat @ np.tile(np.eye(channels, dtype=np.float32), (BLOCK * BLOCK, 1)) / np.float32(BLOCK * BLOCK)
    return means


def _rows(program: Program, feed: Feed, n: int) -> Sequence[Any] | Array:
    value = program.inputs[n]
    return [value.value] * feed.size if isinstance(value, Const) else feed.values[n]


def _row(program: Program, feed: Feed, n: int, row: int) -> Any:
    value = program.inputs[n]
    return value.value if isinstance(value, Const) else feed.values[n][row]
