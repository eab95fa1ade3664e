"""function_facts: the objects that a user's function refers to, found from its code without calling it.

Names are followed as far as they are certain: globals, closures, imports inside the function, attributes of modules and
of the object that a method belongs to, functions of the user's own. The code of libraries is not examined. The search
is bounded, and finds only what is certain.
"""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import random
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...classes import dataclass
from ...graph.sites import in_gpupipe

__all__ = ["Reached", "image_library", "random_source", "reached"]

_MOST_FUNCTIONS = 50


_MOST_INSTRUCTIONS = 20_000


_LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {"<frozen", "<string>"}
)


@dataclass(frozen=True, slots=True)
class Reached:
    """An object that a function's code names.

    Attributes:
        name: as written there, e.g. ``"np.random.rand"``.
        value: the object that the name refers to now.
        owner: the module whose attribute it is; else None.
        called_bare: whether it is called there without arguments.
    """

    name: str
    value: Any
    owner: types.ModuleType | None = None
    called_bare: bool = False


def reached(fn: Any) -> Iterator[Reached]:
    """List the objects that a callable names, and those that the user's own functions it reaches name."""
    waiting: list[tuple[Any, Any]] = [(fn, None)]
    seen: set[int] = set()
    left = _MOST_INSTRUCTIONS
    if isinstance(fn, (types.BuiltinFunctionType, types.MethodType)):  # e.g. rng.permutation
        yield Reached(fn.__name__, fn)
    while waiting and len(seen) < _MOST_FUNCTIONS and left > 0:
        given, owner = waiting.pop()
        if id(given) in seen:
            continue
        seen.add(id(given))
        if isinstance(given, functools.partial):
            waiting += [(part, None) for part in (given.func, *given.args, *given.keywords.values())]
        elif isinstance(given, types.MethodType):
            waiting.append((given.__func__, given.__self__))
        elif isinstance(given, types.FunctionType):
            if _of_a_library(given):
                continue
            for found in _named(given, owner):
                yield found
                waiting.append((found.value, None))
            left -= len(given.__code__.co_code) // 2
        elif not isinstance(given, (type, types.ModuleType, types.BuiltinFunctionType)):
            yield Reached(type(given).__name__, given)  # a callable object, or an argument of a partial
            call = inspect.getattr_static(type(given), "__call__", None)
            if isinstance(call, types.FunctionType):
                waiting.append((call, given))
            parts = getattr(given, "__dict__", {}).get("transforms", ())  # a Compose has them
            waiting += [(part, None) for part in parts] if isinstance(parts, (list, tuple)) else []


def _of_a_library(fn: types.FunctionType) -> bool:
    if fn.__module__ == "__main__":
        return False
    file = fn.__code__.co_filename
    return in_gpupipe(fn.__module__) or any(part in file for part in ("site-packages", "dist-packages", *_LIBRARIES))


_START = {
    "LOAD_GLOBAL",
    "LOAD_NAME",
    "LOAD_DEREF",
    "LOAD_CLASSDEREF",
    "LOAD_FAST",
    "LOAD_FAST_BORROW",
    "LOAD_FAST_CHECK",
}


_SKIPPED = {"PUSH_NULL", "CACHE", "PRECALL", "NOP", "EXTENDED_ARG", "RESUME", "NOT_TAKEN"}


_NOTHING: Any = object()


_NO_STEP: tuple[str, Any] = ("", None)


def _named(fn: types.FunctionType, owner: Any) -> Iterator[Reached]:
    """List the objects that one function names, its inner functions included.

    Args:
        fn: the function.
        owner: the object whose method it is, so its first argument; else None.
    """
    names: dict[str, Any] = dict(vars(builtins))
    names.update(fn.__globals__)
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        if cell != types.CellType():  # an empty cell is bound later
            names[name] = cell.cell_contents
    codes = [fn.__code__]
    while codes:
        code = codes.pop()
        codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
        known = names | dict.fromkeys(code.co_varnames, _NOTHING)
        if owner is not None and code is fn.__code__ and code.co_argcount:
            known[code.co_varnames[0]] = owner
        yield from _named_in(code, known)


def _named_in(code: types.CodeType, known: dict[str, Any]) -> Iterator[Reached]:
    steps = list(_simple(code))
    name, value, owner = "", _NOTHING, None
    for before, (op, argument), (following, count) in zip(
        [_NO_STEP, *steps], steps, [*steps[1:], _NO_STEP], strict=False
    ):
        if op.startswith("STORE_"):
            if before[0] == "IMPORT_FROM":
                known[argument] = _attribute(value, before[1])
                continue  # the module stays for the next name
            known[argument] = value if before[0] == "IMPORT_NAME" else _NOTHING
        if op in _START:
            name, value, owner = str(argument), known.get(argument, _NOTHING), None
        elif op == "IMPORT_NAME":
            name = argument if before[1] is not None else argument.partition(".")[0]  # before it: the names of a `from`
            value, owner = sys.modules.get(name, _NOTHING), None
        elif op == "LOAD_ATTR":
            owner = value if isinstance(value, types.ModuleType) else None
            name, value = f"{name}.{argument}", _attribute(value, argument)
        elif op != "IMPORT_FROM":
            name, value, owner = "", _NOTHING, None
        if value is not _NOTHING and following not in ("LOAD_ATTR", "IMPORT_FROM") and not op.startswith("IMPORT"):
            yield Reached(name, value, owner, following == "CALL" and count == 0)


def _simple(code: types.CodeType) -> Iterator[tuple[str, Any]]:
    """The instructions of some code as (name, argument); double ones become two, method loads attribute loads."""
    for step in dis.get_instructions(code):
        if step.opname in _SKIPPED:
            continue
        if isinstance(step.argval, tuple) and "FAST" in step.opname:  # LOAD_FAST_LOAD_FAST, STORE_FAST_LOAD_FAST
            kinds = ["STORE_FAST" if part == "STORE" else "LOAD_FAST" for part in step.opname.split("_FAST")[:2]]
            yield from zip((kind.lstrip("_") for kind in kinds), step.argval, strict=True)
        else:
            yield ("LOAD_ATTR" if step.opname == "LOAD_METHOD" else step.opname), step.argval


def _attribute(value: Any, name: str) -> Any:
    """An attribute of a module, an object's own field or a plain method; looking up any other could run code."""
    if isinstance(value, types.ModuleType):
        found = vars(value).get(name, _NOTHING)
        return sys.modules.get(f"{value.__name__}.{name}", _NOTHING) if found is _NOTHING else found
    if isinstance(value, _GENERATORS):
        return value  # all of its methods count as the generator
    fields: Any = getattr(value, "__dict__", None) if value is not _NOTHING else None
    if isinstance(fields, dict) and name in fields:
        return fields[name]
    method = inspect.getattr_static(type(value), name, None) if value is not _NOTHING else None
    return types.MethodType(method, value) if isinstance(method, types.FunctionType) else _NOTHING


_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)


_QUIET = {"seed", "get_state", "set_state", "getstate", "setstate", "manual_seed"}


_TORCH = {
    "bernoulli", "multinomial", "normal", "poisson", "rand", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "randperm",
}  # fmt: skip


_SYSTEM = {("os", "urandom"), ("uuid", "uuid1"), ("uuid", "uuid4"), ("random", "SystemRandom")}


_UNSEEDED = (np.random.default_rng, np.random.RandomState, random.Random)


_TRANSFORMS = ("torchvision.transforms", "albumentations", "kornia.augmentation")


_RANDOM_TRANSFORMS = (
    "Random",
    "ColorJitter",
    "AutoAugment",
    "RandAugment",
    "TrivialAugment",
    "AugMix",
    "ElasticTransform",
)


def random_source(fn: Callable[..., Any]) -> str | None:
    """The source of unseeded random numbers in a function, by its name in the code; None if there is none.

    A function that seeds a generator itself, perhaps by the element, has no such source.
    """
    found: str | None = None
    for one in reached(fn):
        if one.name.rpartition(".")[2] in _QUIET and callable(one.value) and (_draws(one) or one.owner is not None):
            return None
        if found is None and _draws(one):
            found = one.name
    return found


def _draws(one: Reached) -> bool:
    value, last = one.value, one.name.rpartition(".")[2]
    if isinstance(value, _GENERATORS):
        return True
    method = isinstance(value, (types.BuiltinFunctionType, types.MethodType))
    if method and isinstance(value.__self__, _GENERATORS):  # random.random, np.random.rand
        return True
    if any(value is made for made in _UNSEEDED):
        return one.called_bare
    owner = getattr(one.owner, "__name__", "")
    if owner == "secrets" or (owner, last) in _SYSTEM:
        return True
    if owner == "torch":
        return last in _TORCH
    if owner.startswith("tensorflow") and owner.endswith(".random"):
        return not last.startswith("stateless")
    kind: type[Any] = type(value)
    return str(kind.__module__).startswith(_TRANSFORMS) and kind.__name__.startswith(_RANDOM_TRANSFORMS)


_IMAGE_LIBRARIES = ("PIL", "cv2", "torchvision", "skimage", "imageio", "albumentations", "kornia", "tifffile")


def image_library(fn: Callable[..., Any]) -> str | None:
    """The image library that a function uses, e.g. ``"PIL"``; None if it uses none."""
    for one in reached(fn):
        value = one.value
        named = one.owner if one.owner is not None else value
        module = named.__name__ if isinstance(named, types.ModuleType) else getattr(value, "__module__", None)
        if not isinstance(module, str) or not module:
            module = type(value).__module__
        root = module.partition(".")[0]
        if root in _IMAGE_LIBRARIES:
            return root
    return None
