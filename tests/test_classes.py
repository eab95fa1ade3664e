"""`gpupipe.classes.dataclass` beside the standard library's: the same classes, made by each."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import KW_ONLY, FrozenInstanceError, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

import gpupipe
from gpupipe import classes
from tests.test_imports import in_a_new_process

Make = Callable[..., Any]


def _point(make: Make, **settings: Any) -> Any:
    class Point:
        """A place."""

        x: int
        name: str = "p"
        tags: list[int] = field(default_factory=list)
        secret: int = field(default=3, repr=False, compare=False)
        told: int = field(default=7, init=False)
        shared: ClassVar[int] = 5
        _: KW_ONLY
        loud: bool = False

        def __post_init__(self) -> None:
            object.__setattr__(self, "name", self.name.strip())

    return make(**settings)(Point)


def _derived(make: Make, **settings: Any) -> Any:
    base: Any = _point(make, **settings)

    class Derived(base):  # type: ignore[misc]
        z: float = 1.5

    return make(**settings)(Derived)


LEFT_OUT = ("eq", "repr", "init")
ASKED = ("", "frozen", "frozen slots", "slots", "eq", "frozen eq slots", "repr", "kw_only", "init")
SETTINGS = [{name: name not in LEFT_OUT for name in names.split()} for names in ASKED]

CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    *((given, {}) for given in [(1, "b", [2], 4), (1, "b", [2], 4, True), (1, "b", [2], 4, 1.5, 6, True)]),
    *(((), given) for given in [{"x": 1, "told": 2}, {"x": 1, "loud": True}]),
    ((1,), {"x": 1}),
    *((given, {}) for given in [(dataclasses.MISSING,), (1, "b", dataclasses.MISSING)]),  # is not "not given"
]


def _outcome(act: Callable[[], Any]) -> str:
    try:
        found = repr(act())
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    return re.sub("0x[0-9a-f]+", "", found)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", [_point, _derived])
def test_a_class_does_what_the_standard_library_s_does(kind: Callable[..., Any], settings: dict[str, Any]) -> None:
    own, theirs = (kind(make, **settings) for make in (classes.dataclass, dataclasses.dataclass))

    def outcomes(cls: Any) -> list[Any]:
        if not settings.get("init", True):
            return [_outcome(lambda: cls(x=1)), _outcome(cls)]
        one = cls(x=1, name=" a ")
        return [
            _outcome(lambda: one),
            repr(cls.__dataclass_params__),
            cls.__match_args__,
            *(_outcome(partial(cls, *given, **named)) for given, named in CALLS),
            cls(x=1) == cls(x=1, loud=False, secret=9),
            cls(x=1) == cls(x=2),
            cls(x=1) == 1,
            cls(x=1).tags is cls(x=1).tags,
            _outcome(lambda: hash(one) == hash(copy.copy(one))),
            _outcome(lambda: setattr(one, "x", 2)),
            settings.get("slots") or _outcome(lambda: setattr(one, "shared", 2)),  # CPython 3.11: another error
            _outcome(lambda: delattr(one, "name")),
            _outcome(lambda: dataclasses.replace(cls(x=1), x=5)),
            _outcome(lambda: dataclasses.asdict(cls(x=1))),
            [(each.name, each.type, each.compare) for each in dataclasses.fields(cls)],
            hasattr(cls(x=1), "__dict__"),
            kind is _derived or cls.__doc__,  # the standard library documents those without a docstring
        ]

    assert outcomes(own) == outcomes(theirs)
    assert str(inspect.signature(own)) == str(inspect.signature(theirs))  # from here on its `__init__` is compiled
    assert outcomes(own) == outcomes(theirs)


@classes.dataclass(frozen=True, slots=True)
class Kept:
    """A class that pickle can find."""

    a: int
    b: str = "b"


@classes.dataclass(frozen=True)
class Plain:
    """A class that others derive from."""

    a: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain)


class Derived(Plain):
    """Not a dataclass itself: it may have attributes of its own."""


def test_instances_are_copied_and_pickled() -> None:
    kept = Kept(1)

    assert pickle.loads(pickle.dumps(kept)) == copy.deepcopy(kept) == copy.copy(kept) == kept
    assert {kept: 1}[Kept(1)] == 1


def test_what_a_class_defines_itself_stays() -> None:
    derived = Derived(1)
    derived.more = 2  # type: ignore[attr-defined]

    assert Plain(1) == Plain(2)
    assert hash(Plain(1)) == hash(Plain(1))
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        derived.a = 3  # type: ignore[misc]


def test_classes_derive_from_those_of_the_standard_library_and_the_other_way() -> None:
    @dataclasses.dataclass(frozen=True)
    class Theirs(Plain):
        b: int = 2

    @classes.dataclass(frozen=True)
    class Ours(Theirs):
        c: int = 3

    assert repr(Ours(1)).endswith("Ours(a=1, b=2, c=3)")
    base: Any = Plain
    for make in (dataclasses.dataclass, classes.dataclass):
        with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):

            @make
            class Wrong(base):  # type: ignore[misc]
                b: int = 2


def test_fields_may_have_any_name() -> None:
    @classes.dataclass(frozen=True)
    class Odd:
        _set: int
        _none: int = 2
        field: list[int] = field(default_factory=list)

    assert repr(Odd(1)).endswith("Odd(_set=1, _none=2, field=[])")


def test_no_module_of_gpupipe_makes_classes_the_slow_way() -> None:
    root = Path(gpupipe.__file__).parent
    slow = [
        path for path in root.rglob("*.py") if re.search(r"from dataclasses import .*\bdataclass\b", path.read_text())
    ]

    assert [path.name for path in slow] == ["classes.py"]


@pytest.mark.parametrize("made", [0, 30])
def test_a_class_that_is_pickled_whole_is_made_as_before(made: int) -> None:
    """As Ray does with classes of a script: `__init__` goes along, compiled or not yet."""
    cloudpickle = pytest.importorskip("ray.cloudpickle")

    def make() -> Any:
        @classes.dataclass(frozen=True)
        class Local:
            x: int
            tags: list[int] = dataclasses.field(default_factory=list)
            name: str = "a"

        return Local

    cls = make()
    for _ in range(made):
        cls(1)

    pickled = cloudpickle.dumps(cls)
    del cls

    code = f"import pickle; cls = pickle.loads({pickled!r}); print(cls(1), [cls(n).x for n in range(30)][-1])"
    said = in_a_new_process(code)
    assert "Local(x=1, tags=[], name='a') " in said and said.endswith("29")
