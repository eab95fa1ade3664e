"""users_file: a dataset named on the command line, as ``FILE.py:NAME`` or ``MODULE:NAME``."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from gpupipe.dataset import Dataset
from gpupipe.errors import GpupipeError, Lines, PlanError, Terminated

__all__ = ["find_dataset", "names_a_dataset", "stdout_on_stderr"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PASSED_OVER = (_PACKAGE + os.sep, os.path.dirname(os.path.abspath(importlib.__file__)) + os.sep, "<frozen ")
"""Starts of the names of files whose lines are left out of a user's traceback."""


def names_a_dataset(text: str) -> bool:
    """Whether a command-line argument means a dataset, not data: it ends in ``.py`` or in ``:name``."""
    file, colon, name = text.rpartition(":")
    return text.endswith(".py") or (bool(colon and file) and _is_dotted(name) and not os.path.exists(text))


def find_dataset(text: str) -> Dataset:
    """Import a user's file or module and find a dataset in it; a function is called without arguments.

    The file runs as ``python FILE.py`` runs it, except that its ``__name__`` is not ``"__main__"``: its folder is first
    on the path, there are no arguments, and what it prints goes to stderr.

    Args:
        text: ``FILE.py:NAME`` or ``MODULE:NAME``; NAME may have dots.

    Raises:
        PlanError: there is no such file, module or name, or it is no dataset.
        GpupipeError: the user's code failed; the message has the user's lines of the traceback.
    """
    where, _, name = (text, "", "") if text.endswith(".py") else text.rpartition(":")
    if not where:
        raise PlanError(f"a dataset needs FILE.py:NAME or MODULE:NAME, got {text!r}")
    module = _from_file(Path(where).expanduser()) if where.endswith(".py") else _from_module(where)
    if not name:
        raise PlanError(f"{where} needs a name behind it, {where}:NAME; {_offered(module)}")
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            near = difflib.get_close_matches(part, list(_candidates(module)), 1)
            hint = f"did you mean {near[0].removesuffix('()')}? " if near else ""
            raise PlanError(f"{where} has no {name!r}; {hint}{_offered(module)}")
        value = getattr(value, part)
    if callable(value) and not isinstance(value, Dataset):
        value = _called(where, name, value)
    if not isinstance(value, Dataset):
        raise PlanError(f"{where}:{name} needs to be a Dataset, got {type(value).__name__}; {_offered(module)}")
    return value


@contextlib.contextmanager
def stdout_on_stderr() -> Iterator[None]:
    """Let what a user's code, its libraries and its worker processes print go to stderr: stdout is for the result."""
    sys.stdout.flush()
    stdout = os.dup(1)
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise PlanError(f"a dataset needs a Python file, got {str(path)!r}: it does not exist; check the path")
    path = path.resolve()
    sys.path.insert(0, str(path.parent))
    # By its own name, so that worker processes can import its functions; unless that is taken.
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else "_users_file"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # for a name that ends in .py there is a loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    with _users_code(str(path)):
        spec.loader.exec_module(module)
    return module


def _from_module(name: str) -> ModuleType:
    if not _is_dotted(name):
        raise PlanError(f"a dataset needs FILE.py:NAME or MODULE:NAME, got {name!r} before the colon")
    sys.path.insert(0, os.getcwd())
    try:
        with _users_code(name):
            return importlib.import_module(name)
    except GpupipeError as error:
        missing = error.__cause__
        if isinstance(missing, ModuleNotFoundError) and missing.name and f"{name}.".startswith(f"{missing.name}."):
            raise PlanError(f"a dataset needs a module, got {name!r}: {missing}; a file ends in .py") from missing
        raise


def _called(where: str, name: str, function: Any) -> Any:
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        text = f"{where}:{name} needs to be a function without required arguments, got one that is {error}"
        raise PlanError(f"{text}; give them defaults, or make the dataset in the file") from error
    except ValueError:  # a builtin without a signature
        pass
    with _users_code(f"{where}:{name}()"):
        return function()


@contextlib.contextmanager
def _users_code(what: str) -> Iterator[None]:
    """Run a user's code: without arguments, with stdout on stderr, and with errors that show the user's lines.

    Raises:
        GpupipeError: it raised, or ended the process.
    """
    arguments = sys.argv
    sys.argv = [what]
    try:
        with stdout_on_stderr():
            yield
    except Terminated:
        raise
    except SystemExit as error:
        raise GpupipeError(
            f"{what} ended itself with status {error.code!r} while it was imported; "
            "put what runs as a program below `if __name__ == '__main__':`"
        ) from error
    except Exception as error:
        raise GpupipeError(Lines(f"{what} failed\n{_users_lines(error)}")) from error
    finally:
        sys.argv = arguments


def _users_lines(error: BaseException) -> str:
    """The traceback of an error without the lines of gpupipe and of Python's import system."""
    found = traceback.TracebackException.from_exception(error)
    waiting: list[traceback.TracebackException | None] = [found]
    while waiting:
        one = waiting.pop()
        if one is None:
            continue
        kept = [frame for frame in one.stack if not frame.filename.startswith(_PASSED_OVER)]
        one.stack = traceback.StackSummary.from_list(kept)
        waiting += [one.__cause__, one.__context__]
    return "".join(found.format()).rstrip()


def _candidates(module: ModuleType) -> Iterator[str]:
    """Names of datasets in a module, and of its own functions that can be called without arguments, as ``name()``."""
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        if isinstance(value, Dataset):
            yield name
        elif inspect.isfunction(value) and value.__module__ == module.__name__ and not _needs_arguments(value):
            yield f"{name}()"


def _needs_arguments(function: Any) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return True
    return False


def _offered(module: ModuleType) -> str:
    names = list(_candidates(module))
    datasets = [name for name in names if not name.endswith("()")]
    functions = [name for name in names if name.endswith("()")]
    listed = f"its datasets are {', '.join(datasets)}" if datasets else "it has no dataset at its top level"
    return listed + (f"; functions that may return one: {', '.join(functions)}" if functions else "")


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))
