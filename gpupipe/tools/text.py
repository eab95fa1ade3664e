"""text: what people read in a terminal."""

from __future__ import annotations

from typing import Any, TextIO

from gpupipe.errors import shown_text

__all__ = ["Shown", "byte_count", "counted"]


def byte_count(n: float) -> str:
    """Bytes in three digits: ``812 B``, ``110 kB``, ``1.28 GB``."""
    if n < 1000:
        return f"{n:.0f} B"
    power = 1
    while n >= 999.5 * 1000**power and power < 4:
        power += 1
    n /= 1000**power
    return f"{n:.{2 if n < 9.995 else 1 if n < 99.95 else 0}f} {'kB MB GB TB'.split()[power - 1]}"


def counted(n: int, what: str) -> str:
    """A number with its noun: ``1 record``, ``1,024 records``."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


class Shown:
    """A stream whose text cannot control a terminal, shows no password and can always be encoded; see `shown_text`.

    Args:
        stream: where it is written; has all other attributes.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        encoding = self._stream.encoding or "utf-8"
        return self._stream.write(shown_text(text).encode(encoding, "backslashreplace").decode(encoding))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
