"""classes: `dataclass` as the standard library's, which makes a class in a fifth of the time.

The standard library compiles six methods for each frozen class, about a millisecond, and the README's chain needs 300
classes before its first batch. Here `__init__` alone is compiled, once a class has made a few instances, since most
classes make no more than that; the other methods are shared functions. What a class can do is the same, but for
`order` and InitVar, which nothing uses. Its fields are those that the standard library finds, so the two may derive
from each other.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

from .urls import cleaned

if TYPE_CHECKING:  # type checkers know the standard library's
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, **settings):
        """Make a class of annotated fields; `dataclasses.dataclass` describes the settings."""
        return _made(cls, **settings) if cls is not None else lambda cls: _made(cls, **settings)


__all__ = ["dataclass"]

_set = object.__setattr__

_LOCK = threading.RLock()
"""Held while bases look as if they were not frozen."""


class _Factory:
    """A default that is made for each instance, as signatures show it."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _made(
    cls: Any,
    *,
    init: bool = True,
    repr: bool = True,
    eq: bool = True,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
) -> Any:
    bases = [base.__dataclass_params__ for base in cls.__mro__ if "__dataclass_params__" in base.__dict__]
    if bases and not frozen and any(base.frozen for base in bases):
        raise TypeError("cannot inherit non-frozen dataclass from a frozen one")
    given = {name for name, value in cls.__dict__.items() if not (name == "__hash__" and value is None)}
    documented = cls.__doc__
    cls.__doc__ = documented or "_"  # the standard library looks for a signature otherwise
    with _thawed(bases):
        cls = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
    cls.__doc__ = documented
    params = cls.__dataclass_params__
    params.init, params.repr, params.eq, params.frozen = init, repr, eq, frozen
    methods: dict[str, Any] = {}
    if init:
        _check_order(cls)
        methods["__init__"] = _Init(cls, frozen)
    if repr:
        methods["__repr__"] = _repr
    if eq:
        methods |= _compared([field for field in dataclasses.fields(cls) if field.compare], frozen)
    if frozen:
        methods |= _frozen(cls)
        if slots:
            methods |= {"__getstate__": _state, "__setstate__": _restore}
    for name, method in methods.items():
        if name not in given:
            setattr(cls, name, method)
    return cls


@contextmanager
def _thawed(bases: list[Any]) -> Iterator[None]:
    """Let a class that looks as if it were not frozen derive from frozen ones."""
    with _LOCK:
        frozen = [base for base in bases if base.frozen]
        for base in frozen:
            base.frozen = False
        try:
            yield
        finally:
            for base in frozen:
                base.frozen = True


def _check_order(cls: Any) -> None:
    """Refuse a field without a default after one with a default.

    Raises:
        TypeError: names the field.
    """
    given = [field for field in dataclasses.fields(cls) if field.init and not field.kw_only]
    defaults = [(field.default, field.default_factory) != (dataclasses.MISSING,) * 2 for field in given]
    late = [field for i, field in enumerate(given) if not defaults[i] and any(defaults[:i])]
    if late:
        raise TypeError(f"non-default argument {late[0].name!r} follows default argument")


_UNCOMPILED = 24
"""Instances that a class makes without a compiled `__init__`: compiling it takes as long as 60 of them save."""


class _Init:
    """`__init__` of a class until somebody asks for it, or the class has made `_UNCOMPILED` instances."""

    def __init__(self, cls: Any, frozen: bool) -> None:
        self.cls, self.frozen = cls, frozen
        self.made = 0
        self.fields: list[tuple[str, bool, Any, Any]] | None = None  # name, init, default, factory
        self.set: Callable[[Any, str, Any], None] = _set if frozen else setattr

    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is not None and self.made < _UNCOMPILED:
            self.made += 1
            return partial(self._fill, instance)
        if self.cls.__dict__["__init__"] is self:  # another thread may have been here
            self.cls.__init__ = _compiled(self.cls, self.frozen)
        found = self.cls.__dict__["__init__"]
        return found if instance is None else found.__get__(instance)

    def __reduce__(self) -> tuple[Any, ...]:
        """Of a class that is pickled as a whole, as cloudpickle does: the compiled function."""
        return _itself, (self.__get__(None, self.cls),)

    def _fill(self, instance: Any, /, *args: Any, **named: Any) -> None:
        """Do what the compiled function does; it is left to that one to say which arguments are wrong."""
        given = self._given(args, named)
        if given is None or self.fields is None:
            self.__get__(None, self.cls)(instance, *args, **named)
            return
        for name, _, default, factory in self.fields:
            if name in given:
                self.set(instance, name, given[name])
            elif factory is not dataclasses.MISSING:
                self.set(instance, name, factory())
            elif default is not dataclasses.MISSING:
                self.set(instance, name, default)
        if hasattr(self.cls, "__post_init__"):
            instance.__post_init__()

    def _given(self, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any] | None:
        """The arguments by the names of their fields; None if they are not those of the class."""
        if self.fields is None:
            fields = dataclasses.fields(self.cls)
            if any(field.kw_only for field in fields):  # these may stand between the others
                return None
            self.fields = [(one.name, one.init, one.default, one.default_factory) for one in fields]
        names = [name for name, init, _, _ in self.fields if init]
        given = dict(zip(names, args, strict=False))
        if len(args) > len(names) or not given.keys().isdisjoint(named) or not named.keys() <= set(names):
            return None
        given.update(named)
        required = (name for name, init, *ways in self.fields if init and ways == [dataclasses.MISSING] * 2)
        return given if all(name in given for name in required) else None


def _itself(function: Any) -> Any:
    return function


def _compiled(cls: Any, frozen: bool) -> Any:
    """The `__init__` of the standard library, line by line."""
    all_fields = dataclasses.fields(cls)
    names: dict[str, Any] = {"__set": _set, "__factory": _FACTORY}
    lines = []
    for field in all_fields:
        name = field.name
        if field.default_factory is not dataclasses.MISSING:
            names[f"__make_{name}"] = field.default_factory
            value = f"__make_{name}() if {name} is __factory else {name}" if field.init else f"__make_{name}()"
        elif field.init:
            value = name
        elif field.default is not dataclasses.MISSING:
            value = f"__is_{name}"
        else:
            continue
        lines.append(f"__set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join(("self", *_parameters(all_fields, names)))
    body = "\n  ".join(lines or ["pass"])
    text = f"def _create({', '.join(names)}):\n def __init__({parameters}):\n  {body}\n return __init__"
    made: dict[str, Any] = {}
    exec(
        text, getattr(sys.modules.get(cls.__module__), "__dict__", {}), made
    )  # of the names of fields, which are identifiers
    found = made["_create"](**names)
    found.__qualname__ = f"{cls.__qualname__}.__init__"
    found.__annotations__ = {field.name: field.type for field in all_fields if field.init} | {"return": None}
    return found


def _parameters(all_fields: tuple[dataclasses.Field[Any], ...], names: dict[str, Any]) -> Iterator[str]:
    """Those of `__init__`; their defaults go into `names`."""
    star = False
    for field in sorted(all_fields, key=lambda field: bool(field.kw_only)):  # stable
        name = field.name
        default = ""
        if field.default is not dataclasses.MISSING:
            names[f"__is_{name}"], default = field.default, f"=__is_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            default = "=__factory"
        if not field.init:
            continue
        if field.kw_only and not star:
            star = True
            yield "*"
        yield f"{name}{default}"


def _compared(compared: list[dataclasses.Field[Any]], frozen: bool) -> Mapping[str, Any]:
    """`__eq__`, and `__hash__` of frozen classes: of all fields that are compared, as tuples."""
    values = _values([field.name for field in compared])

    def __eq__(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    hashed = values
    if any(field.hash is not None for field in compared):
        hashed = _values([field.name for field in compared if field.hash is not False])

    def __hash__(self: Any) -> int:
        return hash(hashed(self))

    return {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}


def _values(names: list[str]) -> Callable[[Any], Any]:
    if len(names) == 1:
        get = attrgetter(names[0])
        return lambda instance: (get(instance),)
    return attrgetter(*names) if names else lambda instance: ()


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return cleaned(f"{self.__class__.__qualname__}({shown})")


def _frozen(cls: Any) -> Mapping[str, Any]:
    """`__setattr__` and `__delattr__` that refuse fields, and whatever else in instances of the class itself."""
    names = {field.name for field in dataclasses.fields(cls)}

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=False):
        _set(self, field.name, value)
