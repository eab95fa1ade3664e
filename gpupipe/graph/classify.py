"""classify: decide what a user's function is without calling it.

A function may be traced if its code reaches a gpupipe name, or if it is a pure expression. Anything else is ordinary
Python: calling it with symbols could run network code, draw random numbers or swallow a refusal in an `except`.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
import inspect
import random as python_random
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .op import Op
from .sites import in_gpupipe

__all__ = [
    "LARGEST",
    "classify",
    "closure_of",
    "generator_states",
    "generators",
    "name_of",
]

_PURE = {
    "RESUME", "NOP", "CACHE", "COPY", "SWAP", "ROT_TWO", "ROT_THREE", "ROT_FOUR", "DUP_TOP", "DUP_TOP_TWO", "POP_TOP",
    "PUSH_NULL", "RETURN_VALUE", "RETURN_CONST", "LOAD_CONST", "LOAD_SMALL_INT", "LOAD_GLOBAL", "LOAD_DEREF",
    "COPY_FREE_VARS", "UNPACK_SEQUENCE", "COMPARE_OP", "IS_OP", "STORE_FAST", "STORE_FAST_LOAD_FAST",
    "STORE_FAST_STORE_FAST", "NOT_TAKEN", "MAKE_CELL", "EXTENDED_ARG",
    "CALL", "CALL_FUNCTION", "CALL_FUNCTION_KW", "CALL_KW", "KW_NAMES", "PRECALL",  # `_size` checks what is called
}  # fmt: skip


_PURE_PREFIXES = (
    "LOAD_FAST",
    "BINARY_",
    "UNARY_",
    "BUILD_TUPLE",
    "BUILD_MAP",
    "BUILD_CONST_KEY_MAP",
    "BUILD_LIST",
    "INPLACE_",
)


_MOST_FUNCTIONS = 100
"""Largest number of functions that one expression may call, directly or not."""


LARGEST = 2000
"""Largest number of instructions of an expression, counting every call of a helper: some hundred operators."""


def classify(fn: Callable[..., Any]) -> str:
    """Classify a function without calling it: ``"ops"``, ``"expression"`` or ``"python"``."""
    if _calls_python(fn, set(), 0):
        return "python"
    if _mentions(fn, set(), 0):
        return "ops"
    return "expression" if _pure(fn) else "python"


def _calls_python(fn: Any, seen: set[int], depth: int) -> bool:
    """Whether a function's code reaches one that exists to call Python (`compat.py_function`), which decides."""
    if isinstance(fn, functools.partial):
        return _calls_python(fn.func, seen, depth)
    fn = getattr(fn, "__func__", fn) if isinstance(fn, types.MethodType) else fn
    if not isinstance(fn, types.FunctionType) or depth > 8 or id(fn) in seen:
        return False
    seen.add(id(fn))
    if fn.__dict__.get("__gpupipe_python__"):
        return True
    if in_gpupipe(fn.__module__):
        return False
    names = set(fn.__code__.co_names)
    for value in captured(fn):
        if isinstance(value, types.ModuleType):
            module = value.__name__
            if "py_function" in names and (module == "gpupipe.compat" or (module == "gpupipe" and "compat" in names)):
                return True
        elif _calls_python(value, seen, depth + 1):
            return True
    return False


def _pure(fn: Any) -> bool:
    """Whether a function is an expression of its parameters, plain values and calls of such functions."""
    if not isinstance(fn, types.FunctionType):
        return False
    known: dict[types.FunctionType, int] = {}
    if not 0 < _size(fn, known) <= LARGEST:
        return False
    # Called with symbols, `a += 1` would change the user's array if `a` is captured.
    arrays = any(isinstance(value, np.ndarray) for one in known for value in (*captured(one), *_defaults(one)))
    return not (arrays and any(_in_place(instruction) for one in known for instruction in dis.get_instructions(one)))


def _size(fn: types.FunctionType, known: dict[types.FunctionType, int]) -> int:
    """The number of instructions of an expression; 0 if it is not one, or is still being examined (recursion).

    A helper counts each time its name is read. Calls through other names are not counted, but `Trace.most` bounds them.

    Args:
        fn: the function.
        known: the sizes of functions already examined; their number is bounded.
    """
    if fn in known or len(known) == _MOST_FUNCTIONS:  # without branches, recursion never ends
        return known.get(fn, 0)
    known[fn] = size = 0
    loads: Counter[str] = Counter()
    for instruction in dis.get_instructions(fn):
        name = instruction.opname
        if name not in _PURE and not name.startswith(_PURE_PREFIXES):
            return 0
        size += 1
        if name in ("LOAD_GLOBAL", "LOAD_DEREF"):
            loads[str(instruction.argval)] += 1
    if any(name not in fn.__globals__ for name in fn.__code__.co_names):  # a built-in function, or undefined
        return 0
    # A call can reach only these functions or a parameter, which is a symbol, a plain value or one of them.
    if not all(value is None or isinstance(value, str) or _plain(value) for value in _defaults(fn)):
        return 0
    for name, value in _named(fn):
        called = _size(value, known) if isinstance(value, types.FunctionType) else int(_plain(value))
        if not called:
            return 0
        size += called * loads[name]
    known[fn] = size
    return size


def _defaults(fn: types.FunctionType) -> list[Any]:
    return [*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()]


def closure_of(fn: types.FunctionType) -> list[Any]:
    """The values of a function's closure cells, without those bound later, and of its defaults."""
    cells = [cell.cell_contents for cell in fn.__closure__ or () if cell != types.CellType()]
    return [*cells, *_defaults(fn)]


def _in_place(instruction: dis.Instruction) -> bool:
    """Whether an instruction is `+=` or the like."""
    name = instruction.opname
    return name.startswith("INPLACE_") or (name == "BINARY_OP" and instruction.argrepr.endswith("="))


def _plain(value: Any) -> bool:
    """Whether a value's operators are Python's or NumPy's own and call no user code."""
    if type(value) is np.ndarray or (isinstance(value, np.generic) and type(value).__module__ == "numpy"):
        return not value.dtype.hasobject  # np.matrix and other subclasses may redefine operators
    return type(value) in (bool, int, float, bytes)


def captured(fn: types.FunctionType) -> list[Any]:
    """The values of the globals and closure cells that the function's code names."""
    return [value for _, value in _named(fn)]


def _named(fn: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Names and values of the globals and closure cells that the function's code names."""
    codes, names = [fn.__code__], set[str]()
    while codes:
        code = codes.pop()
        names |= set(code.co_names)
        codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
    for name in names & fn.__globals__.keys():
        yield name, fn.__globals__[name]
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # an empty cell: its name is bound later
            yield name, cell.cell_contents


def _mentions(fn: Any, seen: set[int], depth: int) -> bool:
    """Whether a callable's code can reach a gpupipe name."""
    if depth > 8 or id(fn) in seen:
        return False
    seen.add(id(fn))
    if isinstance(fn, functools.partial):
        parts = [fn.func, *fn.args, *fn.keywords.values()]
        return any(_mentions(part, seen, depth + 1) for part in parts if callable(part))
    if isinstance(fn, types.MethodType):
        return _mentions(fn.__func__, seen, depth + 1) or _mentions_fields(fn.__self__, seen, depth)
    if not isinstance(fn, types.FunctionType):
        if isinstance(fn, type):
            return in_gpupipe(fn.__module__) or issubclass(fn, Op)
        if in_gpupipe(type(fn).__module__) or in_gpupipe(getattr(fn, "__module__", None)):
            return True
        call = inspect.getattr_static(type(fn), "__call__", None)
        return isinstance(call, types.FunctionType) and (
            _mentions(call, seen, depth + 1) or _mentions_fields(fn, seen, depth)
        )
    if in_gpupipe(fn.__module__):
        return True
    for value in captured(fn):
        if isinstance(value, types.ModuleType):
            if in_gpupipe(value.__name__):
                return True
        elif callable(value) and not _built_in(value) and _mentions(value, seen, depth + 1):
            return True
    return any(_mentions(value, seen, depth + 1) for value in _defaults(fn) if callable(value))


def _built_in(value: Any) -> bool:
    """Whether a callable is a Python built-in: `len`, `int`, `isinstance`, ..."""
    return isinstance(value, types.BuiltinFunctionType) or any(value is known for known in vars(builtins).values())


def _mentions_fields(owner: Any, seen: set[int], depth: int) -> bool:
    """Whether an attribute of a callable object can reach a gpupipe name: `Compose([decode, flip])`."""
    values = list(getattr(owner, "__dict__", {}).values())
    flat = [item for value in values for item in (value if isinstance(value, (list, tuple)) else (value,))]
    return any(_mentions(value, seen, depth + 1) for value in flat if callable(value))


_UNUSED = 623
"""The position in the state of NumPy's global generator before its first number."""


_DEEP, _MANY = 5, 500
"""Largest depth and number of objects that `generators` examines."""


def generators(fn: Any) -> list[Any]:
    """The random generators that a function can reach.

    Follows the names it uses, its closure and its bound object, and the functions, attributes and lists found there.
    """
    kinds = _kinds()
    found: list[Any] = []
    seen: set[int] = set()
    waiting: list[tuple[Any, int]] = [(fn, 0)]
    while waiting and len(seen) < _MANY:
        value, depth = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, kinds):
            found.append(value)
        elif depth < _DEEP:
            waiting.extend((part, depth + 1) for part in _parts(value))
    return found


def _of_numpy() -> Any:
    """The module numpy.random. None until something uses it: importing it takes 9 ms, a thirtieth of a first batch."""
    module = sys.modules.get("numpy.random")
    return module if hasattr(module, "get_state") else None  # which is missing while it is being imported


def _kinds() -> tuple[type, ...]:
    """The classes of random generators that there may be."""
    module = _of_numpy()
    return (python_random.Random,) if module is None else (module.Generator, module.RandomState, python_random.Random)


def _parts(value: Any) -> list[Any]:
    """The objects that a value refers to: globals and cells, defaults, the bound object, attributes, items."""
    if isinstance(value, types.FunctionType):
        if in_gpupipe(value.__module__):
            return []
        return [*captured(value), *_defaults(value)]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, types.BuiltinFunctionType):  # also a bound method: `rng.random`
        return [] if isinstance(value.__self__, types.ModuleType) else [value.__self__]
    if isinstance(value, (list, tuple)):
        return list(value[:100])
    if isinstance(value, dict):
        return list(value.values())[:100]
    if isinstance(value, (type, types.ModuleType)):
        return []
    call = inspect.getattr_static(type(value), "__call__", None)
    own = [call] if isinstance(call, types.FunctionType) else []
    return [*own, *list(getattr(value, "__dict__", {}).values())[:100]]


def generator_states(known: Sequence[Any]) -> list[Any]:
    """The states of the global generators and of `known`, those that a function can reach."""
    module = _of_numpy()
    states: list[Any] = [_UNUSED if module is None else module.get_state()[2], python_random.getstate()]
    torch = sys.modules.get("torch")
    state = getattr(torch, "get_rng_state", None)  # missing while torch is being imported
    if state is not None:
        states.append(state().numpy().tobytes())
    for value in known:
        if isinstance(value, python_random.Random):
            states.append(repr(value.getstate()))
        else:
            own = getattr(value, "bit_generator", None)  # of a Generator; a RandomState has `get_state`
            states.append(repr(value.get_state() if own is None else own.state))
    return states


def name_of(fn: Any) -> str:
    """A function's name for people."""
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    return "the lambda" if name.endswith("<lambda>") else f"{name}()"
