"""Ctrl-C behind the very call that sets something for a while: it is as before once the exception is out.

CPython looks for signals behind every call: also between one of `ContextVar.set` and what would store its token.
"""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.extract.images.decode import MOST_PIXELS
from gpupipe.extract.storage.waiting import LIMITS
from gpupipe.flow.run import PEEKING, SILENT_REPLAY
from gpupipe.graph.eager import ELEMENT
from gpupipe.graph.symbols import ACTIVE
from gpupipe.graph.trace import _CALLED_BEFORE
from tests.behaviour.model import plain
from tests.chains import damage

PACKAGE = Path(gp.__file__).parent


class Struck:
    """A context variable; Ctrl-C strikes behind one of the calls of `set`, when the value is set.

    Args:
        real: the variable.
        call: the number of that call, from 1 on.
    """

    def __init__(self, real: ContextVar[Any], call: int) -> None:
        self.real = real
        self.get, self.reset = real.get, real.reset
        self.left = call

    def set(self, value: Any) -> Any:
        token = self.real.set(value)
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt
        return token


def struck(monkeypatch: pytest.MonkeyPatch, real: ContextVar[Any], call: int) -> Struck:
    """Put it wherever the variable was imported."""
    one = Struck(real, call)
    for name, module in list(sys.modules.items()):
        if name.startswith("gpupipe."):
            for attribute, value in list(vars(module).items()):
                if value is real:
                    monkeypatch.setattr(module, attribute, one)
    return one


def settings() -> list[Any]:
    """What is set for a while, and must be as before."""
    return [real.get() for real in (SILENT_REPLAY, PEEKING, MOST_PIXELS, LIMITS, ACTIVE, _CALLED_BEFORE, ELEMENT)]


CALLS = [*range(1, 25), *range(25, 200, 11)]
"""What is set anew for every element is struck often enough."""


def odd(x: Any) -> Any:
    if x % 7 == 3:
        raise ValueError("bad")
    return x


def chains() -> dict[str, Dataset]:
    numbers = Dataset.range(60)
    return {
        "shuffle": numbers.shuffle(9).batch(4),
        "interleave": numbers.interleave(lambda x: Dataset.range(3), cycle_length=3),
        "a dataset of a function": numbers.flat_map(lambda x: Dataset.from_tensor_slices(np.arange(int(x) % 3))),
        "even shards": numbers.filter(lambda x: x % 5 != 0).shard(5, 4, even="wrap"),
        "cache": numbers.cache().repeat(2).batch(7),
        "replace": numbers.map(odd, traced=False).with_options(Options(on_error="replace")),
        "skip": numbers.map(odd, traced=False).batch(5).shuffle(3).with_options(Options(on_error="skip")),
        "window": numbers.window(6, 2, 1).flat_map(lambda w: w.batch(6)),
    }


@pytest.mark.parametrize(
    "real", [SILENT_REPLAY, PEEKING, MOST_PIXELS, LIMITS, ACTIVE, ELEMENT], ids=lambda real: real.name
)
@pytest.mark.parametrize("name", chains())
def test_an_iterator_goes_on_wherever_it_is_struck(
    name: str, real: ContextVar[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ds, before = chains()[name], settings()
    with ds.iterator(epoch=2) as items:
        first = [plain(next(items)) for _ in range(5)]
        state = items.state_dict()
        rest = [plain(x) for x in items]
    assert len(first) == 5

    for call in CALLS:
        with monkeypatch.context() as patched, ds.iterator(epoch=2) as items:
            one = struck(patched, real, call)
            items.load_state_dict(state)
            got: list[Any] = []
            for _ in range(2):
                with contextlib.suppress(KeyboardInterrupt):
                    for x in items:
                        got.append(plain(x))
                assert settings() == before
            assert got == rest
        if one.left > 0:
            break


def saved(folder: Path) -> None:
    Dataset.range(4).save(str(folder / "saved"))


def traced(folder: Path) -> None:
    Dataset.range(4).map(lambda x: ops.cast(x, np.float32) + 1)


def counted(folder: Path) -> None:
    path = folder / "one.tfrecord"
    damage.write(path, [b"x"])
    len(gp.TFRecordDataset([str(path)]))


@pytest.mark.parametrize("real", [MOST_PIXELS, LIMITS, ACTIVE, _CALLED_BEFORE], ids=lambda real: real.name)
@pytest.mark.parametrize("step", [saved, traced, counted])
def test_a_method_leaves_what_was_set_before(
    step: Callable[[Path], None], real: ContextVar[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = settings()
    for call in range(1, 30):
        with monkeypatch.context() as patched:
            one = struck(patched, real, call)
            folder = tmp_path / str(call)
            folder.mkdir()
            with contextlib.suppress(KeyboardInterrupt):
                step(folder)
            assert settings() == before
        if one.left > 0:
            break


def test_no_file_takes_a_token_but_where_the_iterator_looks_after_it() -> None:
    """A token may never be stored; what stands before is read in front of the call."""
    found = [
        f"{path.relative_to(PACKAGE).as_posix()}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if ".reset(" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "reset"
    ]

    assert [place.partition(":")[0] for place in found] == ["flow/maps/python_function.py"]
