"""brief: short reprs of gpupipe's objects.

A notebook shows the `repr` of the last value in a cell, a debugger that of every variable: it must neither have
megabytes nor take seconds, nor the password of a URL.
"""

from __future__ import annotations

import reprlib
from dataclasses import fields
from typing import Any

from .urls import cleaned

__all__ = ["MOST", "brief", "cut", "digits", "fields_in_brief"]

MOST = 1000
"""Characters of a `repr`, at most."""


class _Brief(reprlib.Repr):
    """Python's `reprlib`, with limits that fit a shape, a structure of some features, a path."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxdict, self.maxstring, self.maxother = 6, 20, 300, 400
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = 20

    def repr_int(self, x: int, level: int) -> str:
        """An integer; Python refuses to print one of thousands of digits."""
        return digits(x)

    def repr_str(self, x: str, level: int) -> str:
        return super().repr_str(cleaned(x), level)

    def repr_bytes(self, x: bytes, level: int) -> str:
        return cut(repr(x), self.maxother)

    def repr_dict(self, x: Any, level: int) -> str:
        """A dict in its own order; `reprlib` sorts the keys."""
        if not x:
            return "{}"
        if level <= 0:
            return "{...}"
        pairs = [f"{self.repr1(key, level - 1)}: {self.repr1(x[key], level - 1)}" for key in list(x)[: self.maxdict]]
        return "{" + ", ".join([*pairs, *(["..."] if len(x) > self.maxdict else [])]) + "}"


_BRIEF = _Brief()


def brief(value: Any, most: int = MOST) -> str:
    """The repr of a value in at most `most` characters."""
    return cut(_BRIEF.repr(value), most)


def digits(number: int) -> str:
    """An integer for a message; one of many digits as a power of 2."""
    about = f"about {'-' if number < 0 else ''}2**{number.bit_length()}"
    return str(number) if number.bit_length() < 100 else about


def cut(text: str, most: int = MOST) -> str:
    """Shorten a text to at most `most` characters, its start and its end; without the secrets of URLs."""
    text = cleaned(text)
    if len(text) <= most:
        return text
    tail = most // 4
    return f"{text[: most - tail - 5]} ... {text[-tail:]}"


def fields_in_brief(self: Any) -> str:
    """The repr of a dataclass as its decorator would make it, but short. Assign it as ``__repr__`` in the class."""
    parts = [f"{f.name}={brief(getattr(self, f.name))}" for f in fields(self) if f.repr]
    return cut(f"{type(self).__qualname__}({', '.join(parts)})")
