"""Dataclasses as element structure: taken apart like a NamedTuple, one argument of a function, made again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, TensorSpec, ops
from gpupipe.spec import describe, flatten, flatten_like, map_structure
from tests.behaviour.model import run

R = Dataset.range


@dataclass(frozen=True)
class Sample:
    image: Any
    label: Any = 0
    name: Any = None


@dataclass
class Mutable:
    b: Any
    a: Any


@dataclass(slots=True, kw_only=True)
class Slotted:
    inner: Any
    number: Any


@dataclass(frozen=True)
class Checked:
    """Looks at its values, as dataclasses of real programs do."""

    image: Any
    label: Any

    def __post_init__(self) -> None:
        if self.image.ndim < 1 or not 0 <= int(np.max(self.label)) < 100:
            raise ValueError(f"label {self.label}")


def plain(value: Any) -> Any:
    """Dataclasses as (name, fields) of plain values."""
    if hasattr(value, "__dataclass_fields__"):
        return type(value).__name__, {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def seen(chain: Dataset) -> list[Any]:
    return [plain(element) for element in chain]


def test_fields_are_leaves_in_their_order() -> None:
    leaves, structure = flatten(Mutable(a=1, b=(2, {"x": 3})))

    assert leaves == [2, 3, 1]
    assert structure.leaf_names() == [".b[0]", ".b[1]['x']", ".a"]
    assert structure.unflatten(leaves) == Mutable(a=1, b=(2, {"x": 3}))
    assert str(structure) == "Mutable(b=(*, {'x': *}), a=*)"
    assert structure == flatten(Mutable(b=(5, {"x": 5}), a=5))[1] != flatten((1, (2, {"x": 3})))[1]
    assert flatten_like((1, (2, {"x": 3})), structure) is None
    assert map_structure(lambda x: x + 1, Mutable(1, 2)) == Mutable(2, 3)
    assert describe(Sample(1, 2)) == "Sample(image=1, label=2, name=None)"


@pytest.mark.parametrize("function", [lambda x: Sample(x, x + 1), lambda x: Sample(int(x), int(x) + 1)])
def test_functions_return_them(function: Callable[[Any], Any]) -> None:
    chain = R(3).map(function)

    assert list(chain) == [Sample(x, x + 1) for x in range(3)]
    assert seen(chain.batch(2))[1] == ("Sample", {"image": [2], "label": [3], "name": None})
    assert list(chain.batch(2).unbatch()) == list(chain.as_numpy_iterator()) == list(chain)
    assert list(chain.cache().shuffle(1).repeat(1)) == list(chain)


def test_functions_get_one_argument() -> None:
    chain = R(3).map(lambda x: Mutable(x, x * 2))

    assert run(chain.map(lambda m: m.a + m.b)) == [0, 3, 6]
    assert run(chain.map(lambda m: ops.cast(m.a, "float32"))) == [0, 2, 4]
    assert seen(chain.filter(lambda m: bool(m.a > 2))) == [("Mutable", {"b": 2, "a": 4})]
    assert run(chain.take_while(lambda m: bool(m.a < 3)).map(lambda m: m.b)) == [0, 1]
    assert run(chain.flat_map(lambda m: R(int(m.b)))) == [0, 0, 1]
    assert run(chain.scan(Slotted(inner=(0, 0.5), number=1), lambda s, m: (
        Slotted(inner=(s.inner[0] + m.b, s.inner[1]), number=s.number * 2), s.inner[0] + s.number
    ))) == [1, 2, 5]  # fmt: skip
    assert chain.reduce(Mutable(0, 0.0), lambda s, m: Mutable(s.b + m.b, s.a + m.a / 2)) == Mutable(3, 3.0)
    with pytest.raises(TypeError, match="takes"):
        chain.batch(1).take(1).apply(lambda d: Dataset.from_tensors(Mutable(1, 2)).map(lambda b, a: b))


def test_constructors_take_them() -> None:
    data = Sample(np.arange(6).reshape(3, 2), [1, 2, 3])

    assert seen(Dataset.from_tensors(data))[0][1]["image"] == [[0, 1], [2, 3], [4, 5]]
    slices = Dataset.from_tensor_slices(data)
    assert seen(slices)[1] == ("Sample", {"image": [2, 3], "label": 2, "name": None})
    assert slices.element_spec == Sample(TensorSpec((2,), "int64"), TensorSpec((), "int64"))
    listed = Dataset.from_list([Sample(1, b"x"), Sample(2, b"y")])
    assert list(listed) == [Sample(1, b"x"), Sample(2, b"y")]
    zipped = Dataset.zip(Mutable(R(2), slices))
    assert seen(zipped)[1] == ("Mutable", {"b": 1, "a": ("Sample", {"image": [2, 3], "label": 2, "name": None})})
    signature = Sample(TensorSpec((), "float32"), TensorSpec((), "int64"))
    generated = Dataset.from_generator(lambda: iter([Sample(1.5, 2)]), output_signature=signature)
    assert seen(generated) == [("Sample", {"image": 1.5, "label": 2, "name": None})]
    wrong = Dataset.from_generator(lambda: iter([(1.5, 2)]), output_signature=Mutable(TensorSpec(), TensorSpec()))
    with pytest.raises(gp.DataError, match=r"Mutable\(b="):
        list(wrong)
    assert seen(slices.concatenate(slices).shard(6, 4)) == [("Sample", {"image": [2, 3], "label": 2, "name": None})]
    with pytest.raises(TypeError, match="one structure"):
        slices.concatenate(Dataset.from_tensors(Mutable([0, 1], 2)))


def test_the_constructor_sees_values_only() -> None:
    chain = Dataset.from_tensor_slices(Checked(np.arange(4).reshape(2, 2), [5, 6]))

    assert "Checked" in repr(chain)
    assert "Checked(image=int64[?,2], label=int64[?])" in str(chain.batch(1).explain())
    assert seen(chain.map(lambda c: c))[0] == ("Checked", {"image": [0, 1], "label": 5})
    assert seen(chain.map(lambda c: Checked(c.image, c.label)))[1] == ("Checked", {"image": [2, 3], "label": 6})
    assert run(chain.map(lambda c: ops.cast(c.image, "float32"))) == [[0, 1], [2, 3]]  # traced
    with pytest.raises(gp.DataError, match="raised ValueError: label 105"):
        list(chain.map(lambda c: Checked(c.image, int(c.label) + 100)))


def test_padded_batches_of_them() -> None:
    chain = R(1, 4).map(lambda n: Mutable(np.arange(int(n)), int(n)))

    expected = [("Mutable", {"b": [[0, 7, 7], [0, 1, 7], [0, 1, 2]], "a": [1, 2, 3]})]
    assert seen(chain.padded_batch(3, Mutable([None], []), Mutable(7, 0))) == expected
    with pytest.raises(TypeError, match="needs padded_shapes as a Mutable"):
        Dataset.from_tensors(Mutable([1], 2)).padded_batch(1, ([None], []))


@dataclass
class Derived:
    a: int
    b: int = field(init=False, default=0)


@dataclass
class Extra:
    a: int
    scale: InitVar[int]

    def __post_init__(self, scale: int) -> None:
        self.a *= scale


@dataclass(init=False)
class Own:
    a: int

    def __init__(self, text: str) -> None:
        self.a = int(text)


@dataclass
class Empty:
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Derived(1), "every field, got Derived with 'b', declared init=False"),
        (Extra(1, 2), r"takes their fields \(a\), got Extra"),
        (Own("1"), r"takes their fields \(a\), got Own"),
        (Empty(), "empty dataclass Empty"),
    ],
)
def test_those_that_cannot_be_made_again_are_refused(value: Any, text: str) -> None:
    with pytest.raises(gp.PlanError, match=text):
        Dataset.from_tensors(value)
    with pytest.raises(gp.DataError, match=text):
        list(R(1).map(lambda x: (int(x), value)))
