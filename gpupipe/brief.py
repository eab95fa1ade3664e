"""brief: what `repr` shows of gpupipe's objects, cut to what a person reads.

A notebook shows the `repr` of whatever stands last in a cell, a debugger that of every variable: it may neither be of
megabytes, nor take seconds.
"""

from __future__ import annotations

import reprlib
from dataclasses import fields
from typing import Any

__all__ = ["MOST", "brief", "cut", "digits", "fields_in_brief"]

MOST = 1000
"""Letters of a `repr`, at most."""


class _Brief(reprlib.Repr):
    """Python's own short repr, with room for what is common: a shape, a structure of some features, a path."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxdict, self.maxstring, self.maxother = 6, 20, 300, 400
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = 20

    def repr_int(self, x: int, level: int) -> str:
        """An integer; Python refuses to write one of thousands of digits."""
        return digits(x)

    def repr_dict(self, x: Any, level: int) -> str:
        """A dict in its own order; the library sorts the keys."""
        if not x:
            return "{}"
        if level <= 0:
            return "{...}"
        pairs = [f"{self.repr1(key, level - 1)}: {self.repr1(x[key], level - 1)}" for key in list(x)[: self.maxdict]]
        return "{" + ", ".join([*pairs, *(["..."] if len(x) > self.maxdict else [])]) + "}"


_BRIEF = _Brief()


def brief(value: Any, most: int = MOST) -> str:
    """The repr of a value in at most `most` letters."""
    return cut(_BRIEF.repr(value), most)


def digits(number: int) -> str:
    """A number for a message, one of many digits by its size."""
    about = f"about {'-' if number < 0 else ''}2**{number.bit_length()}"
    return str(number) if number.bit_length() < 100 else about


def cut(text: str, most: int = MOST) -> str:
    """A text in at most `most` letters: its begin and its end."""
    if len(text) <= most:
        return text
    tail = most // 4
    return f"{text[: most - tail - 5]} ... {text[-tail:]}"


def fields_in_brief(self: Any) -> str:
    """The repr of a dataclass, as its decorator would make it, in brief. Put it in the class as ``__repr__``."""
    parts = [f"{f.name}={brief(getattr(self, f.name))}" for f in fields(self) if f.repr]
    return cut(f"{type(self).__qualname__}({', '.join(parts)})")
