"""repair: a group without its bad rows or in parts, and results copied to the host, joined, or wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import Location, PixelError
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


def split(feed: Feed, values: HostValues, decoders: Sequence[Apply], capacity: int, memory: int) -> list[Feed]:
    """Split a batch that exceeds an executor's capacity, or whose decoded images exceed a budget.

    Args:
        feed: the batch.
        values: its host values.
        decoders: the calls that decode its images.
        capacity: rows.
        memory: bytes of decoded images.
    """
    pixels = np.zeros(feed.size, np.int64)
    for decoder in decoders:
        height, width = values.encoded_sizes(decoder).T.astype(np.int64)
        pixels += height * width * 3
    parts, start, room = [], 0, memory
    for i, size in enumerate(pixels.tolist()):
        if (size > room or i - start == capacity) and i > start:
            parts.append(feed.part(start, i))
            start, room = i, memory
        room -= size
    return [feed] if start == 0 else [*parts, feed.part(start, feed.size)]


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
