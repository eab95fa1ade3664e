"""named: dicts of symbols that say which keys there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from ..errors import PlanKeyError
from .sites import at_line, user_site

__all__ = ["Named", "named"]


class Named(dict[Any, Any]):
    """A dict of symbols whose KeyError lists the existing keys.

    Functions get plain dicts, which tree libraries know, and this class only in a second call, after a KeyError.
    """

    __slots__ = ("_who",)

    def __init__(self, values: Mapping[Any, Any], who: str) -> None:
        super().__init__(values)
        self._who = who

    def __missing__(self, key: Any) -> NoReturn:
        import difflib  # for mistakes alone

        names = [name for name in self if isinstance(name, str)]
        near = difflib.get_close_matches(key, names, 1) if isinstance(key, str) else []
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(map(repr, self))}"
        raise PlanKeyError(f"{self._who} has no {key!r}{at_line(user_site())}; {hint}")


def named(value: Any) -> Any:
    """An element of symbols with its dicts as `Named`."""
    if type(value) is dict:
        return Named({key: named(item) for key, item in value.items()}, "the element")
    if type(value) is tuple:
        return tuple(map(named, value))
    return value
