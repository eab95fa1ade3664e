"""names: the key and the extension in a member's name, and the compression in an archive's."""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["BY_NAME", "KEY", "compression_of", "key_digest", "split_name"]

KEY = b"__key__"
"""The column of a sample's key."""


BY_NAME = "by name"
"""In place of a compression: GZIP where the name of an archive ends with .gz or .tgz."""


def split_name(name: bytes) -> tuple[bytes, bytes] | None:
    """The key and the extension in a member's name; None for one that belongs to no sample.

    That is a directory, a name without an extension or with a leading dot, and what lies below ``__name__``.
    """
    slash = name.rfind(b"/")
    dot = name.find(b".", slash + 1)
    if dot <= slash + 1:
        return None
    if name.startswith(b"__") and slash >= 0 and name.partition(b"/")[0].endswith(b"__"):
        return None
    return name[:dot], name[dot + 1 :].lower()


def key_digest(key: bytes) -> int:
    """64 bits that tell the key of a sample from others, for indexes."""
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "little")


def compression_of(path: str, given: str) -> str:
    """The compression of an archive: as given, or by its name."""
    if given != BY_NAME:
        return given
    return "GZIP" if path.lower().endswith((".gz", ".tgz")) else ""
