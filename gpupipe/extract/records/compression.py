"""compression: the compressions that a TFRecord file may have."""

from __future__ import annotations

from typing import Literal

from gpupipe.errors import PlanError

__all__ = ["COMPRESSIONS", "Compression", "checked_compression"]

Compression = Literal["", "GZIP", "ZLIB"]


COMPRESSIONS: tuple[Compression, ...] = ("", "GZIP", "ZLIB")


def checked_compression(name: str | None) -> Compression:
    """Check TensorFlow's name of a compression and return "", "GZIP" or "ZLIB".

    Raises:
        PlanError: any other name, for which TensorFlow would read the file as if it were not compressed.
    """
    for known in COMPRESSIONS:
        if name == known or (name is None and not known):
            return known
    raise PlanError(f'compression_type is one of None, "", "GZIP" and "ZLIB" (upper case), got {name!r}')
