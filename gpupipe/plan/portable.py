"""portable: a digest of a chain by content, equal in every process, for files and states that outlive this one.

A node's own fingerprint may tell objects apart by identity, and large arrays by address. Here everything counts by
content: arrays, the code of functions, the global names and classes that they use, the state of objects. An object
whose content cannot be read (a generator, a lock, an object of a C library) makes the digest private to this process.
"""

from __future__ import annotations

import abc
import collections
import enum
import functools
import hashlib
import inspect
import os
import re
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import field, fields, is_dataclass
from typing import Any, Generic, Protocol

import numpy as np

from ..classes import dataclass
from ..graph.trace import Traced
from ..graph.values import Apply, Const, Draw, Identity, Input, Item, Value, topological
from ..spec import Compound
from ..urls import identity
from .named_files import NamedFiles, decoded
from .node import Node, walk
from .order import WithOptions
from .ranks import ByRank, OnRay

__all__ = ["Portable", "Walker", "numbered", "portable"]

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_BASES = (*_PLAIN, tuple, list, dict, set, frozenset, np.ndarray)
_MIXINS = (abc.ABC, Generic, Protocol)
# Not what a class is; the last one is left by pickle.
_SKIPPED = {"__annotations__", "__dict__", "__weakref__", "__doc__", "__module__", "__slotnames__"}
_ALSO_READ = (functools.partial, functools.partialmethod, functools.cached_property, type)
"""What a class may hold that is read, although it is of the standard library or a class."""
_LONGEST_SCHEMES = 256
"""Bytes before the path of a URL."""
_AT_ONCE = 1024
"""Texts that are joined and digested at a time."""
_MOST_USED = 1_000_000
"""Parts of what one function uses that are compared: a list may hold itself, and an object lead to all of a program."""


@dataclass(frozen=True, slots=True)
class Portable:
    """The digest of a chain.

    Attributes:
        digest: 16 bytes.
        private: the part of the chain that no other process can compare, in words; None if there is none.
        named: the files that its steps name.
    """

    digest: bytes
    private: str | None
    named: tuple[NamedFiles, ...] = field(compare=False)

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the files that the chain names, each once."""
        return tuple(dict.fromkeys(decoded(path) for part in self.named for path in part.paths))


def portable(root: Node, paths: bool = True, ranks: bool = True, signing: Sequence[str] = ()) -> Portable:
    """Digest a chain by content. Options are not part of it: callers know them, merged along the chain.

    A URL counts by what identifies the file, wherever it is: as the name of one, or as text that a function uses.

    Args:
        root: the chain.
        paths: whether the directories of its files count.
        ranks: whether the choice of the rows of a rank counts.
        signing: `Options.signing_parameters`.
    """
    walker = Walker(paths, ranks, signing)
    walker.add(root)
    return Portable(walker.hasher.digest(), walker.private, tuple(walker.files))


def numbered(root: Node, ranks: bool = True) -> Iterator[tuple[Node, list[int]]]:
    """The steps of a chain, inputs before users, with the numbers of their inputs.

    Neither options count as steps nor who makes the elements.

    Args:
        root: the chain.
        ranks: whether the choice of the rows of a rank counts.
    """
    without = (WithOptions, OnRay) if ranks else (WithOptions, OnRay, ByRank)
    numbers: dict[int, int] = {}
    count = 0
    for node in walk(root):
        below = [numbers[id(source)] for source in node.sources]
        if isinstance(node, without):
            numbers[id(node)] = below[0]
            continue
        numbers[id(node)] = count
        count += 1
        yield node, below


class Walker:
    """Digests parts one after the other, with a stack: chains and closures may be deep."""

    def __init__(self, paths: bool = True, ranks: bool = True, signing: Sequence[str] = ()) -> None:
        self._paths = paths
        self.ranks = ranks
        self.signing = signing
        self.queries = False  # whether a URL counts otherwise than as it is
        self.hasher = hashlib.blake2b(digest_size=16)
        self.private: str | None = None
        self.files: list[NamedFiles] = []
        self._stack: list[Any] = []
        self._seen: dict[int, tuple[int, Any]] = {}  # by id: (number, object), which keeps the id taken
        self._left: int | None = None  # how many more parts of a function are looked at; None outside of functions

    def add(self, part: Any) -> None:
        self._stack.append(part)
        self._drain()

    def _drain(self) -> None:
        """Digest what is on the stack; of what a function uses, at most a bounded number of parts."""
        while self._stack:
            self._one(self._stack.pop())
            if self._left is not None:
                self._left -= 1
                if not self._left:
                    self.private = self.private or f"a function that uses more than {_MOST_USED:,} objects"
                    self._stack.clear()

    def _put(self, text: str) -> None:
        self.hasher.update(text.encode(errors="surrogateescape") + b";")

    def _push(self, *parts: Any) -> None:
        self._stack.extend(reversed(parts))

    def _one(self, part: Any) -> None:
        if type(part) not in _BASES and isinstance(part, _BASES) and self._derived(part):
            return
        if isinstance(part, (*_PLAIN, np.dtype)):
            if isinstance(part, (str, bytes)):
                part = self._text(part)
            if isinstance(part, bytes):
                self._put(f"bytes{len(part)}")
                self.hasher.update(part)
            else:
                self._put(f"{type(part).__name__}={part!r}")
        elif isinstance(part, (np.ndarray, np.generic)):
            self._array(np.asarray(part))
        elif isinstance(part, (tuple, list)):
            self._put(f"{type(part).__qualname__}{len(part)}")
            self._push(*part)
        elif isinstance(part, dict):
            self._put(f"{type(part).__qualname__}{len(part)}")
            self._push(*(item for pair in part.items() for item in pair))
        elif isinstance(part, (set, frozenset)):
            self._put(f"set{sorted(map(repr, part))}")
            if not _is_plain(part):  # others may look alike
                self._push(*sorted(part, key=repr))
        elif isinstance(part, range):
            self._put(repr(part))
        elif isinstance(part, slice):
            self._put("slice")
            self._push(part.start, part.stop, part.step)
        elif isinstance(part, enum.Enum):
            self._put(f"{type(part).__qualname__}.{part.name}")
            self._push(type(part), part.value)
        elif isinstance(part, re.Pattern):
            self._put(f"re{part.pattern!r}{part.flags}")
        elif isinstance(part, os.PathLike):
            self._put(f"path{os.fspath(part)!r}")
        elif id(part) in self._seen:  # a function may call itself
            self._put(f"again{self._seen[id(part)][0]}")
        else:
            self._seen[id(part)] = len(self._seen), part
            self._object(part)

    def _text(self, part: str | bytes) -> str | bytes:
        """What counts of a text or of bytes: of a URL, what identifies it."""
        if isinstance(part, bytes):
            if b"://" not in part[:_LONGEST_SCHEMES]:
                return part
            name = part.decode(errors="surrogateescape")
            found: str | bytes = identity(name, self.signing).encode(errors="surrogateescape")
        else:
            found = identity(part, self.signing)
        self.queries = self.queries or found != part
        return found

    def _derived(self, part: Any) -> bool:
        """Digest what an object has beside its content whose class is derived from a builtin one, or from an array's.

        Returns whether all of it was digested before: it may hold itself.
        """
        if isinstance(part, collections.defaultdict):
            self._push(part.default_factory)
        if isinstance(part, np.ndarray) and getattr(part, "_mask", None) is not None:  # np.ma
            self._push(part._mask)  # type: ignore[attr-defined]
        if _of_a_library(type(part).__module__):
            return False
        own = _own(part)
        if own or isinstance(part, (list, dict, set)):
            if id(part) in self._seen:
                self._put(f"again{self._seen[id(part)][0]}")
                return True
            self._seen[id(part)] = len(self._seen), part
        self._push(type(part), own)
        return False

    def _object(self, part: Any) -> None:
        if isinstance(part, Node):
            self._plan(part)
        elif isinstance(part, Traced):
            self._values(part.outputs)
            self._push(part.structure)
        elif isinstance(part, Value):
            self._values((part,))
        elif isinstance(part, types.FunctionType):
            self._function(part)
        elif isinstance(part, types.CodeType):
            self._code(part)
        elif isinstance(part, types.MethodType):
            self._put("method")
            self._push(part.__func__, part.__self__)
        elif isinstance(part, functools.partial):
            self._put("partial")
            self._push(part.func, part.args, part.keywords, *_attributes(part))
        elif isinstance(part, functools.partialmethod):
            self._push(part.func, part.args, part.keywords)
        elif isinstance(part, functools.cached_property):
            self._push(part.func)
        elif isinstance(part, types.ModuleType):
            self._put(f"module {part.__name__} {getattr(part, '__version__', '')}")
        elif isinstance(part, type):
            self._class(part)
        elif isinstance(part, (types.BuiltinFunctionType, np.ufunc)) and not _is_bound(part):
            self._put(f"builtin {getattr(part, '__module__', '')}.{part.__name__}")
        elif isinstance(part, (types.BuiltinMethodType, types.MethodWrapperType)):
            self._put(f"method {part.__name__}")
            self._push(part.__self__)
        elif isinstance(part, Compound) and isinstance(getattr(part, "plan", None), Node):
            self._plan(part.plan)  # type: ignore[attr-defined]
        elif is_dataclass(part):
            self._put(f"object {type(part).__module__}.{type(part).__qualname__}")
            known = _of_a_library(type(part).__module__)  # by its author, who says what makes two of them equal
            kept = [getattr(part, f.name) for f in fields(part) if f.compare] if known else [_own(part)]
            self._push(type(part), *kept)
        else:
            self._state(part)

    def _plan(self, root: Node) -> None:
        for node, below in numbered(root, self.ranks):
            self.step(node, below)

    def step(self, node: Node, below: list[int]) -> None:
        """Digest one step, without its inputs.

        Args:
            node: the step.
            below: the numbers of its inputs.
        """
        self._put(f"{type(node).__name__} {node.branch} {below}")
        self.files.append(node.named_files())
        traced = getattr(node, "traced", None) is not None or node.made is not None
        for name, value in node.parameters(self._paths):
            # The graph of a traced function says everything about it.
            if name == "fn" and traced:
                continue
            nodes = value if isinstance(value, tuple) else (value,)
            if nodes and all(isinstance(one, Node) for one in nodes):
                # Inputs count by their numbers; a plan that belongs to a function or a file counts here.
                value = [one for one in nodes if not any(one is source for source in node.sources)]
            self.add((name, value))
            self._left = None

    def _values(self, outputs: tuple[Value, ...]) -> None:
        """Digest a graph, inputs before users: each value by its content and the numbers of its inputs."""
        numbers: dict[Value, int] = {}
        for value in topological(outputs):
            below = [numbers[x] for x in value.inputs]
            numbers[value] = len(numbers)
            match value:
                case Input(index=index) | Identity(index=index) | Item(index=index):
                    parts: tuple[Any, ...] = (type(value).__name__, index)
                case Const():
                    parts = ("const", value.value)
                case Draw():
                    parts = ("draw", value.op, value.site)
                case Apply():
                    parts = ("apply", value.op, len(value.x))
                case _:
                    parts = (type(value).__name__, value.digest)
            self._push((*parts, below))
            self._drain()
        self._put(f"outputs {[numbers[x] for x in outputs]}")

    def _array(self, array: Any) -> None:
        kind = "O" if array.dtype == object else array.dtype.str if array.dtype.names is None else repr(array.dtype)
        self._put(f"array {kind} {array.shape}")
        if array.dtype == object:
            texts = array.ravel().tolist()
            if all(type(text) is bytes for text in texts):  # what `_one` does with each, at once
                for start in range(0, len(texts), _AT_ONCE):
                    some: Any = map(self._text, texts[start : start + _AT_ONCE])
                    self.hasher.update(b"".join([b"bytes%d;%b" % (len(text), text) for text in some]))
            else:
                self._push(*texts)
            return
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for start in range(0, len(flat), 1 << 24):
            self.hasher.update(flat[start : start + (1 << 24)].data)

    def _function(self, fn: types.FunctionType) -> None:
        self._put(f"function {fn.__module__}.{fn.__qualname__}")
        if _of_a_library(fn.__module__):  # its version stands for its code
            return
        if self._left is None:
            self._left = _MOST_USED
        cells = []
        for cell in fn.__closure__ or ():
            try:
                cells.append(cell.cell_contents)
            except ValueError:  # the name is bound later
                cells.append("unbound")
        names = sorted(_names(fn.__code__))
        used = [(name, fn.__globals__[name]) for name in names if name in fn.__globals__]
        modules: set[int] = set()
        for _, module in used:  # which grows: a module may hold modules
            if isinstance(module, types.ModuleType) and id(module) not in modules:
                modules.add(id(module))
                if not _of_a_library(module.__name__):
                    used += [(name, vars(module)[name]) for name in names if name in vars(module)]
        self._push(fn.__code__, cells, fn.__defaults__, fn.__kwdefaults__, used)
        self._push(*_attributes(fn))

    def _code(self, code: types.CodeType) -> None:
        self._put(f"code {sys.version_info[:2]} {code.co_names} {code.co_varnames} {code.co_freevars}")
        self._push(code.co_code, code.co_consts)
        more = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS), getattr(code, "co_exceptiontable", b"")
        if any(more):  # two functions may differ in nothing else
            self._push(*more)

    def _class(self, kind: type[Any]) -> None:
        self._put(f"class {kind.__module__}.{kind.__qualname__}")
        if _of_a_library(kind.__module__):
            return
        self._push(kind.__bases__)
        if not _of_a_library(type(kind).__module__):
            self._push(type(kind))
        if issubclass(kind, enum.Enum):
            self._push([(member.name, member.value) for member in kind])
        for name, value in sorted(vars(kind).items()):
            value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
            value = value.fget if isinstance(value, property) else value
            counts = isinstance(value, (tuple, np.ndarray, types.FunctionType, *_ALSO_READ)) or _is_plain(value)
            if (counts or not _of_a_library(type(value).__module__)) and name not in _SKIPPED:
                self._push((name, value))

    def _state(self, part: Any) -> None:
        """Digest an object by its class and attributes, if Python can see all of them."""
        kind = type(part)
        strange = [base for base in kind.__mro__[:-1] if _of_a_library(base.__module__) and base not in _MIXINS]
        if strange:
            self.private = self.private or f"an object of the class {kind.__module__}.{kind.__qualname__}"
            return
        self._put(f"object {kind.__module__}.{kind.__qualname__}")
        self._push(kind, _own(part))


def _is_plain(value: Any) -> bool:
    """Whether a value is plain, or a collection of a bounded number of plain values that does not hold itself."""
    stack, met = [value], set()
    for _ in range(_MOST_USED):
        if not stack:
            return True
        part = stack.pop()
        if isinstance(part, (list, dict)):
            if id(part) in met:
                return False
            met.add(id(part))
        if isinstance(part, (list, tuple, set, frozenset)):
            stack += part
        elif isinstance(part, dict):
            stack += [*part, *part.values()]
        elif not isinstance(part, _PLAIN):
            return False
    return False


def _own(part: Any) -> dict[str, Any]:
    """The attributes of an object, but for those that its `set_epoch` writes: in each epoch they are others."""
    own = dict(vars(part)) if type(part).__dictoffset__ else {}
    for base in type(part).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in _SKIPPED and hasattr(part, name):
                own[name] = getattr(part, name)
    written = getattr(getattr(type(part), "set_epoch", None), "__code__", None)
    return {name: own[name] for name in sorted(own, key=str) if written is None or name not in written.co_names}


def _attributes(part: Any) -> tuple[dict[str, Any], ...]:
    """The attributes that a function, or a partial one, was given; nothing if there are none."""
    return (dict(sorted(vars(part).items())),) if vars(part) else ()


def _is_bound(part: Any) -> bool:
    """Whether a builtin is a method of an object, or of `np.frompyfunc`, whose state cannot be read."""
    if isinstance(part, np.ufunc):
        return part.__name__.endswith(" (vectorized)")
    owner = getattr(part, "__self__", None)
    return owner is not None and not isinstance(owner, (types.ModuleType, type))


def _names(code: types.CodeType) -> set[str]:
    """The names that a function and its inner functions look up."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


@functools.lru_cache(maxsize=1024)
def _of_a_library(module: str | None) -> bool:
    """Whether a module is installed rather than written by the user."""
    top = str(module).partition(".")[0]
    if top == "__main__":  # also of functions that came from another program: what runs here may be a library's
        return False
    if top in sys.stdlib_module_names or top == "gpupipe":
        return True
    file = getattr(sys.modules.get(top), "__file__", None)
    return file is not None and ("site-packages" in file or "dist-packages" in file)
