"""What a function's code tells of it: whether it draws random numbers, and with which library it handles images."""

from __future__ import annotations

import functools
import os
import random
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.random import rand

import gpupipe as gp
from gpupipe.optimize.report.function_facts import image_library, random_source

GENERATOR = np.random.default_rng(1)


class Turn:
    """A callable object with a generator of its own."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)
        self.count = 3

    def __call__(self, x: Any) -> Any:
        return x, self.draw()

    def draw(self, x: Any = None) -> float:
        return float(self.rng.random())

    def fixed(self, x: Any) -> Any:
        return x * self.count


class RandomTurn:
    """As torchvision's transforms are: random, by a name that says so."""

    __module__ = "torchvision.transforms.v2"

    def __call__(self, x: Any) -> Any:
        return x


class Compose:
    """A row of transforms."""

    def __init__(self, *transforms: Any) -> None:
        self.transforms = list(transforms)


def _below(x: Any) -> Any:
    return x * random.random()


def _imports(x: Any) -> Any:
    from random import choice, randint

    import numpy.random as numbers

    return choice([x, numbers.rand(), randint(0, 1)])


def _seeded(x: Any) -> Any:
    random.seed(int(x))
    return random.random()


def _seeded_by_the_element(x: Any) -> Any:
    return np.random.default_rng(int(x)).random() + np.random.RandomState(int(x)).rand()


def _handed_in(x: Any, rng: np.random.Generator) -> Any:
    return x * rng.random() + len(random.__name__)


def _shadowed(x: Any, random: Any) -> Any:
    return x + random.random()


def _loops(x: Any) -> Any:
    return _loops(x - 1) if x else _loops


DRAWING: dict[str, tuple[Any, str]] = {
    "random": (lambda x: random.uniform(0, x), "random.uniform"),
    "a name that was imported": (lambda x: rand() + x, "rand"),
    "a generator": (lambda x: x + GENERATOR.normal(), "GENERATOR.normal"),
    "the system": (lambda x: os.urandom(3), "os.urandom"),
    "a function below": (lambda x: _below(x), "random.random"),
    "imports": (_imports, "choice"),
    "a callable object": (Turn(), "self.rng.random"),
    "a random transform": (RandomTurn(), "RandomTurn"),
}


@pytest.mark.parametrize("name", DRAWING)
def test_what_a_function_draws_from_is_named(name: str) -> None:
    fn, source = DRAWING[name]

    assert random_source(fn) == source


@pytest.mark.parametrize(
    "fn",
    [
        _seeded, _seeded_by_the_element, _handed_in, _shadowed, _loops, Turn().fixed, Compose(Turn().fixed), len, int,
        np.flip, os.path.basename, lambda x: x, lambda x: np.asarray(x).sum(),
        lambda x: types.SimpleNamespace(random=x),
        functools.partial(_seeded, 3), lambda x: "random", lambda random: random.random(),
    ],
)  # fmt: skip
def test_a_function_that_draws_nothing_or_what_it_is_told_is_left_alone(fn: Callable[..., Any]) -> None:
    assert random_source(fn) is None


def test_pytorchs_numbers_are_found() -> None:
    torch = pytest.importorskip("torch")

    assert random_source(lambda x: x * torch.rand(())) == "torch.rand"
    assert random_source(lambda x: torch.from_numpy(x)) is None


def test_tensorflows_numbers_are_found_unless_a_seed_is_their_argument() -> None:
    tf = pytest.importorskip("tensorflow")

    assert random_source(lambda x: x * tf.random.uniform(())) == "tf.random.uniform"
    assert random_source(lambda x: x * tf.random.stateless_uniform((), seed=(int(x), 1))) is None


def test_a_library_of_images_is_found_and_no_other() -> None:
    import PIL.Image
    from PIL import Image

    assert image_library(lambda path: np.asarray(Image.open(path))) == "PIL"
    assert image_library(lambda path: np.asarray(PIL.Image.open(path))) == "PIL"
    assert image_library(RandomTurn()) == "torchvision"
    assert image_library(lambda x: np.rot90(x)) is None
    assert image_library(_loops) is None


def test_nothing_is_called_and_no_property_is_asked() -> None:
    class Lazy:
        @property
        def rng(self) -> Any:
            raise AssertionError("asked")

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"asked for {name}")

    lazy = Lazy()

    assert random_source(lambda x: lazy.rng.random()) is None
    assert random_source(lambda x: lazy.other.random()) is None


# ---- what another thread draws while a function is traced is no draw of the function


@pytest.fixture(params=[random.random, np.random.rand], ids=["random", "numpy"])
def draws(request: pytest.FixtureRequest) -> Iterator[Callable[[], Any]]:
    """Lets another thread, which runs already, draw."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result(10)
        yield lambda: pool.submit(request.param).result(10)


@pytest.mark.parametrize("times", [1, 1000])
def test_draws_of_another_thread_are_no_draws_of_the_function(draws: Callable[[], Any], times: int) -> None:
    left = [times]

    def function(x: Any) -> Any:
        if left[0]:
            left[0] -= 1
            draws()
        return x + 1

    assert [int(x) for x in gp.Dataset.range(3).map(function, traced=True)] == [1, 2, 3]
    assert left[0] == (0 if times == 1 else times - 17)


def test_a_function_that_draws_on_some_calls_is_refused(draws: Callable[[], Any]) -> None:
    calls = []

    def function(x: Any) -> Any:
        calls.append(1)
        draws()
        return x + len(calls)

    with pytest.raises(gp.TraceError, match="draws from a random generator"):
        gp.Dataset.range(3).map(function, traced=True)
    assert len(calls) == 2
