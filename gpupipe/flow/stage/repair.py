"""repair: a group without its bad rows or in parts, and results copied to the host, joined, or wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import Location, PixelError
from ...extract.images.budget import BUDGET, LARGE, kind_of, peak_bytes
from ...graph.host_values import HostValues
from ...graph.values import Apply
from ...log import logger
from ...options import Settings
from ...transform.array import concatenate, to_host
from ...transform.program import Feed, WrongPixels
from ..batching.batcher import Group
from ..element import Element

__all__ = ["host_copy", "in_spite_of", "joined", "make_holes", "split"]


def make_holes(group: Group, holes: Mapping[int, Element]) -> None:
    """Turn bad rows of a group into holes, which `order` delivers in their places."""
    rows = group.rows
    kept = [i for i in range(len(rows)) if i not in holes]
    if group.order is not None:
        moved = {old: new for new, old in enumerate(kept)}
        group.order = [
            item if not isinstance(item, int) else moved.get(item, holes.get(item, 0)) for item in group.order
        ]
    group.rows = [rows[i] for i in kept]


def host_copy(result: Any) -> Any:
    """Copy a result of a GPU stage to NumPy arrays."""
    return [to_host(row) for row in result] if isinstance(result, list) else to_host(result)


def joined(parts: Sequence[Any]) -> Any:
    """Join one output of several parts of a batch."""
    if not any(isinstance(part, list) for part in parts) and len({tuple(part.shape[1:]) for part in parts}) == 1:
        return concatenate(parts)
    return [row for part in parts for row in part]


def split(
    feed: Feed, values: HostValues, decoders: Sequence[Apply], capacity: int, memory: int, shared: bool = False
) -> list[Feed]:
    """Split a batch that exceeds an executor's capacity, or whose decoded images exceed a budget.

    Args:
        feed: the batch.
        values: its host values.
        decoders: the calls that decode its images.
        capacity: rows.
        memory: bytes of decoded images.
        shared: whether the executor decodes the rows of a part at the same time on the host: then the large images of
            a part need no more than the budget of the process (`extract/images/budget.py`), unless it is one alone.
    """
    pixels, large = np.zeros(feed.size, np.int64), np.zeros(feed.size, np.int64)
    for decoder in decoders:
        sizes = values.encoded_sizes(decoder).astype(np.int64)
        pixels += sizes.prod(axis=1) * 3
        if shared:
            large += _large(values, decoder, sizes)
    if large.any():
        feed = replace(feed, large=tuple(large.tolist()))
    parts, start, room, budget = [], 0, memory, BUDGET.most
    for i, (size, need) in enumerate(zip(pixels.tolist(), large.tolist(), strict=True)):
        if (size > room or need > budget or i - start == capacity) and i > start:
            parts.append(feed.part(start, i))
            start, room, budget = i, memory, BUDGET.most
        room -= size
        budget -= need
    return [feed] if start == 0 else [*parts, feed.part(start, feed.size)]


def _large(values: HostValues, decoder: Apply, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The bytes that decoding takes for each large image of a batch, int64[B]; 0 for all others.

    Args:
        values: of the batch.
        decoder: the call that decodes the images.
        sizes: their heights and widths, int64[B,2].
    """
    found = np.zeros(len(sizes), np.int64)
    most = peak_bytes("webp", 1, 1)  # of all formats
    candidates = np.flatnonzero(sizes.prod(axis=1) * most > LARGE).tolist()
    if not candidates:
        return found
    images = values.rows(decoder.x[0])
    windows = values.rows(decoder.params[1]) if decoder.op.parameters == ("start", "shape") else None
    for row in candidates:
        kind = kind_of(images[row])
        height, width = sizes[row].tolist()
        if windows is not None and kind == "jpeg":  # of which no more is decoded
            height, width = np.minimum(windows[row], sizes[row]).tolist()
        need = peak_bytes(kind, height, width)
        found[row] = need if need > LARGE else 0
    return found


def in_spite_of(found: WrongPixels, rows: Sequence[Element], settings: Settings, delivered: bool = True) -> list[Any]:
    """The results of a batch with wrong pixels, which are logged if the results are delivered.

    Raises:
        PixelError: `Options.wrong_pixels` is "raise".
    """
    texts = []
    for row, text in found.rows.items():
        _, stream, position = rows[row]
        texts.append(f"{Location(stream.name, position, stream.unit)}: {text} ({found.where})")
    if settings.wrong_pixels == "raise":
        more = f"; {len(texts) - 1} more of its batch are wrong, too" if len(texts) > 1 else ""
        raise PixelError(
            f"{texts[0]}: this is not the image that the host decodes{more}. The data is not bad, but earlier "
            "batches may be wrong, too. Check the driver and the card, run with Options(device='cpu'), or "
            "continue with Options(wrong_pixels='warn')"
        ) from None
    for text in texts if delivered else ():
        logger.warning("%s: this is not the image that the host decodes, and is delivered as it is", text)
    return found.results
