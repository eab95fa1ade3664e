"""What SECURITY.md promises, read from the source text: no file's contents become code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EVERY = [path.relative_to(ROOT) for folder in ("gpupipe", "ops") for path in (ROOT / folder).rglob("*.py")]
SOURCES = [path for path in EVERY if path.parts[:2] != ("gpupipe", "ops")]  # a link to the other folder

UNSAFE = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml", "runpy", "code"}
HOMES = {
    "pickle": {"gpupipe/flow/workers/pool.py", "gpupipe/flow/workers/worker.py"},  # settings of gpupipe's own processes
}
CALLS = {"eval", "exec", "compile", "__import__"}
MAKERS = {"gpupipe/classes.py"}  # ... of methods, from the names of fields in the source
IMPORTS = {  # ... of modules by a name that is computed
    "gpupipe/__init__.py",  # its own modules, from a list
    "gpupipe/cli/__init__.py",  # subcommands, from a list
    "gpupipe/dataset/__init__.py",  # its own modules, from a list
    "gpupipe/optimize/lower/compile.py",  # its own modules, from a list
    "gpupipe/tools/users_file.py",  # named on the command line
    "gpupipe/flow/workers/messages.py",  # the module of a function that the parent process sent
    "ops/__init__.py",  # its own files
}


def unsafe(path: str, source: str) -> Iterator[str]:
    """What a file uses that can make code of data."""
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        for name in {name.split(".")[0] for name in names} & UNSAFE:
            if path not in HOMES.get(name, ()):
                yield f"{path}:{getattr(node, 'lineno', 0)} imports {name}"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            makes = called in CALLS and path not in MAKERS and ast.unparse(node) != "exec('')"  # which makes nothing
            if makes or called.endswith(("allow_pickle", "extractall", "os.system", "os.popen")):
                yield f"{path}:{node.lineno} calls {called}"
            if called.split(".")[-1] == "import_module" and path not in IMPORTS:
                yield f"{path}:{node.lineno} imports what a name says"
            if any(given.arg == "shell" or given.arg == "allow_pickle" for given in node.keywords):
                yield f"{path}:{node.lineno} calls {called} with a shell, or with pickles allowed"


def test_no_file_makes_code_of_data() -> None:
    found = [x for path in SOURCES for x in unsafe(path.as_posix(), (ROOT / path).read_text(encoding="utf-8"))]

    assert len(SOURCES) > 500
    assert found == []


PLANTED = ("import pickle", "def f(x):\n    import marshal", "eval(text)", "np.load(file, allow_pickle=True)",
           "importlib.import_module(name)", "archive.extractall(folder)")  # fmt: skip


@pytest.mark.parametrize("source", PLANTED)
def test_what_makes_code_of_data_is_found(source: str) -> None:
    assert len(list(unsafe("gpupipe/io.py", source))) == 1
