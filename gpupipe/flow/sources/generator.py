"""generator: elements of a Python generator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any

from ...classes import dataclass
from ...errors import DataError, FunctionError, GpupipeError, ends_run
from ...spec import Structure, TensorSpec, as_declared, as_leaf, describe, flatten, flatten_like, own, spec_of
from ..bad.found import as_before, bad_element
from ..check import conform, failed, fits, same_structure, shown
from ..element import Element, Stream
from ..run import Context
from ..state.snapshot import State, replayed
from ..step import Running

__all__ = ["GeneratorFlow"]


@dataclass(frozen=True, slots=True)
class GeneratorFlow:
    """The values of a Python generator, checked against its signature.

    Attributes:
        structure: of the signature; None without one.
        specs: of the signature.
        seen: the structure of the first element, once there was one and there is no signature.
        first: the specs of the first element, once there was one.
    """

    generator: Callable[..., Any]
    args: tuple[Any, ...]
    structure: Structure | None
    specs: tuple[TensorSpec, ...]
    seen: list[Structure] = field(default_factory=list, compare=False)
    first: list[tuple[TensorSpec, ...]] = field(default_factory=list, compare=False)

    def learned(self) -> Structure | None:
        """The structure of the first element; None before there was one."""
        return self.seen[0] if self.seen else None

    def open(self, at: Context, state: State = None) -> Running:
        return replayed(
            lambda: as_before(at, None, Running(self._elements(at))), at, state
        )  # a generator cannot start in the middle

    def _elements(self, at: Context) -> Iterator[Element]:
        stream = at.stream("generator", "from_generator")
        try:
            values = iter(self.generator(*self.args))
        except BaseException as error:
            if ends_run(error):
                raise
            yield bad_element(failed("from_generator", error, stream, 0), stream, 0)
            return
        position = 0
        try:
            while True:
                try:
                    value = next(values)
                except StopIteration:
                    return
                except BaseException as error:
                    if ends_run(error):
                        raise
                    yield bad_element(failed("from_generator", error, stream, position), stream, position)
                    return
                yield self._checked(value, stream, position)
                position += 1
        finally:
            if hasattr(values, "close"):
                values.close()

    def _checked(self, value: Any, stream: Stream, position: int) -> Element:
        try:
            if self.structure is not None:
                parts = flatten_like(value, self.structure)
                if parts is None:
                    wanted = describe(self.structure.unflatten(list(self.specs)))
                    raise FunctionError(f"from_generator needs elements like {wanted}, got {shown(value)}")
                leaves = [own(as_declared(part, spec)) for part, spec in zip(parts, self.specs, strict=True)]
                columns = conform("from_generator", self.structure, tuple(leaves), self.structure, self.specs)
                if any(spec.dtype is None for spec in self.specs):
                    self._like_the_first(columns)
                return columns, stream, position
            leaves, structure = flatten(value)
            columns = tuple([own(as_leaf(leaf)) for leaf in leaves])
            same_structure("from_generator", structure, self.seen)
            self._like_the_first(columns)
            return columns, stream, position
        except DataError as error:
            return bad_element(error.at(stream.name, position, "from_generator", "index"), stream, position)
        except GpupipeError as error:
            return bad_element(failed("from_generator", error, stream, position), stream, position)

    def _like_the_first(self, columns: tuple[Any, ...]) -> None:
        """Check dtypes, and without a signature ranks, against those of the first element, which are stored.

        Raises:
            FunctionError: they differ.
        """
        if not self.first:
            specs = [spec_of(column).loose() for column in columns]
            if self.structure is not None:  # the signature has the rank, if it says one
                specs = [TensorSpec(None, spec.dtype) if type(spec) is TensorSpec else spec for spec in specs]
            self.first.append(tuple(specs))
            return
        first = self.first[0]
        if all(map(fits, columns, first)):
            return
        found = tuple(map(spec_of, columns))
        if not all(a.accepts(b) for a, b in zip(first, found, strict=True)):
            structure = self.structure or self.seen[0]
            raise FunctionError(
                f"needs elements of one dtype and rank, got {describe(structure.unflatten(found))} after "
                f"{describe(structure.unflatten(first))}; convert them, or declare them with output_signature="
            )
