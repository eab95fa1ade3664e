"""missing: hints for names that a public module does not have."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

__all__ = ["names_missing"]


def names_missing(
    module: str, names: Sequence[str], instead: Mapping[str, str], elsewhere: Callable[[str], str] = lambda name: ""
) -> Callable[[str], object]:
    """Make the `__getattr__` of a module, which raises an AttributeError that says what to write instead.

    Args:
        module: its name.
        names: its public names.
        instead: hints for names that other libraries have.
        elsewhere: returns a hint where another module has the name, else "".
    """
    alike = {_bare(name): name for name in names}

    def __getattr__(name: str) -> object:
        way = ""
        if not name.startswith("_"):
            import difflib  # for mistakes alone

            own = alike.get(_bare(name)) or next(iter(difflib.get_close_matches(name, names, 1)), None)
            way = instead.get(name) or elsewhere(name) or ("" if own is None else f"did you mean {own}?")
        text = f"module {module!r} has no attribute {name!r}" + (way and f"; {way}")
        raise AttributeError(text, name=name, obj=sys.modules[module])

    return __getattr__


def _bare(name: str) -> str:
    return name.replace("_", "").lower()
