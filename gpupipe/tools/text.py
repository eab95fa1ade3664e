"""text: numbers as people read them in a terminal."""

from __future__ import annotations

__all__ = ["byte_count", "counted"]


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
