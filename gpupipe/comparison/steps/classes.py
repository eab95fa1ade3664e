"""classes: the kinds of encoded images among those compared, which decoder takes each, and how exact it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import DecodeError
from ...extract.images import jpeg, png
from ...extract.images.describe import describe
from ..pixels import gap_of
from ..result import JpegClass
from .compare_steps import Compared
from .material import Rows, calls_of

__all__ = ["classes_of", "taken_by_dali"]


def taken_by_dali(data: Any) -> bool:
    """Whether DALI decodes an image; if not, the host does, for every executor.

    Raises:
        DecodeError: it is not an image.
    """
    kind = describe(data).header.format
    return (kind == "jpeg" and jpeg.is_ordinary(data)) or (kind == "png" and png.is_ordinary(data, False, False))


def classes_of(found: Compared, executors: Sequence[str]) -> tuple[JpegClass, ...]:
    """The kinds of images that decoders were given, the most frequent first."""
    kinds: dict[tuple[str, bool], list[tuple[int, dict[str, Any], Any]]] = {}
    for material in found.materials:
        for call in calls_of(material.program):
            if not call.op.decodes:
                continue
            ours: dict[str, Rows] = {key: found.decoded[key, call] for key in executors if (key, call) in found.decoded}
            for row, data in enumerate(material.rows[call.x[0]]):
                try:
                    kind = describe(data).kind, taken_by_dali(data)
                except DecodeError:  # the chain left it out: it cannot be among the rows
                    continue
                images = {key: rows[row] for key, rows in ours.items()}
                kinds.setdefault(kind, []).append((len(data), images, material.rows[call][row]))
    return tuple(
        _class(*kind, members) for kind, members in sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0]))
    )


def _class(kind: str, dali: bool, members: Sequence[tuple[int, dict[str, Any], Any]]) -> JpegClass:
    keys = [key for key in members[0][1] if all(key in images for _, images, _ in members)]
    return JpegClass(
        kind=kind,
        images=len(members),
        bytes_mean=sum(size for size, _, _ in members) / len(members),
        decoder="DALI" if dali else "host",
        gaps={key: gap_of([images[key] for _, images, _ in members], [one for _, _, one in members]) for key in keys},
    )
