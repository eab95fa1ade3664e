"""classify: decide what a user's function is without calling it, and find the lines of its errors.

A function may be traced if its code reaches a gpupipe name, or if it is a pure expression. Anything else is ordinary
Python: calling it with symbols could run network code, draw random numbers or swallow a refusal in an `except`.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
import inspect
import os
import random as python_random
import re
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import PlanError, PlanTypeError
from .op import Op

__all__ = [
    "LARGEST",
    "call_site",
    "classify",
    "generator_states",
    "generators",
    "mistake_of",
    "name_of",
    "site_of",
    "user_site",
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
    if ours(fn.__module__):
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


def ours(name: str | None) -> bool:
    return name is not None and (name == "gpupipe" or name.startswith("gpupipe."))


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
            return ours(fn.__module__) or issubclass(fn, Op)
        if ours(type(fn).__module__) or ours(getattr(fn, "__module__", None)):
            return True
        call = inspect.getattr_static(type(fn), "__call__", None)
        return isinstance(call, types.FunctionType) and (
            _mentions(call, seen, depth + 1) or _mentions_fields(fn, seen, depth)
        )
    if ours(fn.__module__):
        return True
    for value in captured(fn):
        if isinstance(value, types.ModuleType):
            if ours(value.__name__):
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


_DEEP, _MANY = 5, 500
"""Largest depth and number of objects that `generators` examines."""


def generators(fn: Any) -> list[Any]:
    """The random generators that a function can reach.

    Follows the names it uses, its closure and its bound object, and the functions, attributes and lists found there.
    """
    found: list[Any] = []
    seen: set[int] = set()
    waiting: list[tuple[Any, int]] = [(fn, 0)]
    while waiting and len(seen) < _MANY:
        value, depth = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, (np.random.Generator, np.random.RandomState, python_random.Random)):
            found.append(value)
        elif depth < _DEEP:
            waiting.extend((part, depth + 1) for part in _parts(value))
    return found


def _parts(value: Any) -> list[Any]:
    """The objects that a value refers to: globals and cells, defaults, the bound object, attributes, items."""
    if isinstance(value, types.FunctionType):
        if ours(value.__module__):
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
    states: list[Any] = [np.random.get_state()[2], python_random.getstate()]  # type: ignore[index]
    torch = sys.modules.get("torch")
    state = getattr(torch, "get_rng_state", None)  # missing while torch is being imported
    if state is not None:
        states.append(state().numpy().tobytes())
    for value in known:
        if isinstance(value, np.random.Generator):
            states.append(repr(value.bit_generator.state))
        else:
            states.append(repr(value.get_state() if isinstance(value, np.random.RandomState) else value.getstate()))
    return states


_WRONG_CALL = re.compile(r"([\w.<>]+)\(\) (?:missing|got|takes) ")


def mistake_of(error: Exception, who: str) -> PlanError | None:
    """The plan error for an exception with one possible cause: a gpupipe name that does not exist, or a wrong call.

    Args:
        error: the exception of the user's function.
        who: the method that called it, for the message.

    Returns:
        The error to raise instead; None for any other exception, and for one raised outside the user's code.
    """
    trail = error.__traceback__
    if trail is None:
        return None
    while trail.tb_next is not None:
        trail = trail.tb_next
    frame = trail.tb_frame
    if ours(frame.f_globals.get("__name__")) and frame.f_code.co_name != "__getattr__":
        return None
    where = site_of(error)
    if isinstance(error, AttributeError):
        module = error.obj
        if not isinstance(module, types.ModuleType) or not ours(module.__name__):
            return None
        way = "".join(str(error).partition("; ")[1:])
        return PlanError(f"{who} needs names that exist, got {module.__name__}.{error.name}, at {where}{way}")
    found = _WRONG_CALL.match(str(error)) if type(error) is TypeError else None
    if found is None or not _calls_ours(frame, found[1]):
        return None
    return PlanTypeError(f"{who} needs a function that passes the right arguments, got: {error}, at {where}")


def _calls_ours(frame: types.FrameType, name: str) -> bool:
    """Whether a function called `name` that a frame's code reaches as a name or an attribute is gpupipe's."""
    loaded: dict[bool, set[str]] = {True: set(), False: set()}  # global names, and attributes
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD")):
            loaded[instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")].add(instruction.argval)
    reached = [frame.f_globals[n] for n in loaded[True] if n in frame.f_globals] + list(frame.f_locals.values())
    for value in reached.copy():
        if isinstance(value, types.ModuleType) and ours(value.__name__):
            reached += [getattr(value, n) for n in loaded[False] if hasattr(value, n)]
    functions = [value.func if isinstance(value, functools.partial) else value for value in reached]
    functions += [value.__init__ for value in functions if isinstance(value, type)]  # type: ignore[misc]
    called = [value for value in functions if getattr(value, "__qualname__", None) == name]
    return bool(called) and all(ours(value.__module__) for value in called)


def call_site() -> str:
    """``file:line`` of the first frame outside gpupipe."""
    frame = sys._getframe(1)
    while frame.f_back is not None and ours(frame.f_globals.get("__name__")):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def user_site() -> str:
    """``file:line`` of the innermost frame that is the user's own: neither gpupipe's nor an installed package's."""
    frames: list[tuple[types.FrameType, int]] = []
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and not _calls_users(frame):
        frames.append((frame, frame.f_lineno))
        frame = frame.f_back
    return _users(frames)


def site_of(error: BaseException) -> str:
    """``file:line`` of the innermost user frame of an exception's traceback; "" if there is none."""
    frames: list[tuple[types.FrameType, int]] = []
    trail = error.__traceback__
    while trail is not None:
        if _calls_users(trail.tb_frame):
            frames.clear()  # of nested functions, the innermost counts
        else:
            frames.append((trail.tb_frame, trail.tb_lineno))
        trail = trail.tb_next
    return _users(frames[::-1])


def _calls_users(frame: types.FrameType) -> bool:
    """Whether a frame is gpupipe's call of a user's function."""
    return frame.f_code.co_name == "call_with" and frame.f_globals.get("__name__") == "gpupipe.graph.trace"


def _users(frames: Sequence[tuple[types.FrameType, int]]) -> str:
    """``file:line`` of the first of some frames, innermost first, that is the user's own.

    The last frame outside gpupipe is the function that the user passed. If it belongs to an installed package, that
    package's frames count as the user's.
    """
    outside = [(frame, line) for frame, line in frames if not ours(frame.f_globals.get("__name__"))]
    if not outside:
        return ""
    home = str(outside[-1][0].f_globals.get("__name__")).partition(".")[0]
    for frame, line in outside:
        file = frame.f_code.co_filename
        if not _installed(file) or str(frame.f_globals.get("__name__")).partition(".")[0] == home:
            return f"{file}:{line}"
    return ""


@functools.lru_cache(1024)
def _installed(file: str) -> bool:
    """Whether a file belongs to an installed package or to Python itself."""
    return file.startswith(("<frozen ", _STANDARD + os.sep)) or not {"site-packages", "dist-packages"}.isdisjoint(
        Path(file).parts
    )


_STANDARD = os.path.dirname(os.__file__)


def name_of(fn: Any) -> str:
    """A function's name for people."""
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    return "the lambda" if name.endswith("<lambda>") else f"{name}()"
