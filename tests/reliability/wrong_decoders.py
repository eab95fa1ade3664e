"""wrong_decoders: decoders that give wrong pixels without an error, as decoders of GPUs have done.

DALI decodes on the CPU; a function of Python behind its decoder spoils rows of chosen runs. It is told nothing of what
will be looked at.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpupipe.graph.op import Array

Fault = Callable[[list[Array], int, Array], None]
"""Spoils row n of a batch; the third is what its memory held before: rows of earlier runs, one behind the other."""


def untouched(rows: list[Array], n: int, before: Array) -> None:
    """The row is what was there."""
    rows[n] = np.resize(before, rows[n].shape)


def zeros(rows: list[Array], n: int, before: Array) -> None:
    """The row is black."""
    rows[n] = np.zeros_like(rows[n])


def exchanged(rows: list[Array], n: int, before: Array) -> None:
    """The row and the next one have changed places."""
    rows[n], rows[n + 1] = rows[n + 1], rows[n]


def torn(rows: list[Array], n: int, before: Array) -> None:
    """The lower half of the row is black."""
    rows[n] = rows[n].copy()
    rows[n][len(rows[n]) // 2 :] = 0


def unfinished(rows: list[Array], n: int, before: Array) -> None:
    """The lower half of the row is what was there."""
    rows[n] = rows[n].copy()
    half = rows[n][len(rows[n]) // 2 :]
    half[:] = np.resize(before, half.shape)


FAULTS: dict[str, Fault] = {f.__name__: f for f in (untouched, zeros, exchanged, torn, unfinished)}


class _Decoders:
    """Stands in for `nvidia.dali.fn`, with other decoders; `_decoded` is what they are.

    Args:
        fn: DALI's.
    """

    def __init__(self, fn: Any) -> None:
        self._fn = fn
        self.decoders = SimpleNamespace(
            image=functools.partial(self._decoded, fn.decoders.image),
            image_slice=functools.partial(self._decoded, fn.decoders.image_slice),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fn, name)

    def _decoded(self, decode: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
        raise NotImplementedError


class Spoiler(_Decoders):
    """What its decoders give is spoilt.

    Args:
        fn: DALI's.
        fault: what happens to a row.
        row: which one.
        runs: of the pipeline, counted from 1.
        pipeline: number of the pipeline that it happens to, counted from 1 in the order in which they are built.
    """

    def __init__(self, fn: Any, fault: str, row: int, runs: Sequence[int], pipeline: int = 1) -> None:
        super().__init__(fn)
        self._fault, self._row, self._runs, self._chosen = FAULTS[fault], row, runs, pipeline
        self._built = 0
        self.spoilt = 0

    def _decoded(self, decode: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
        self._built += 1
        image = decode(*inputs, **options)
        if self._built != self._chosen:
            return image
        run, before = 0, np.full(1 << 16, 101, np.uint8)

        def spoil(rows: list[Any]) -> list[Any]:
            nonlocal run, before
            run += 1
            arrays = [np.asarray(row) for row in rows]
            now = np.concatenate([row.ravel() for row in arrays])
            if run in self._runs and self._row < len(arrays):
                self._fault(arrays, self._row, before)
                self.spoilt += 1
            before = np.roll(now, 1234)
            return arrays

        return self._fn.python_function(image, function=spoil, batch_processing=True, output_layouts="HWC")


class OtherDecoder(_Decoders):
    """A decoder that refuses some JPEGs, and makes the lower half of others black.

    Args:
        fn: DALI's.
        blackens: whether it blackens a JPEG, given its bytes and the number of the run, counted from 1.
        refuses: whether it refuses a JPEG.
    """

    def __init__(
        self,
        fn: Any,
        blackens: Callable[[bytes, int], bool],
        refuses: Callable[[bytes], bool] = lambda data: False,
    ) -> None:
        super().__init__(fn)
        self._blackens, self._refuses = blackens, refuses
        self.runs = 0
        self.blackened = 0

    def _decoded(self, decode: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
        def changed(rows: list[Any], files: list[Any]) -> list[Array]:
            self.runs += 1
            out = []
            for row, file in zip(map(np.asarray, rows), (np.asarray(file).tobytes() for file in files), strict=True):
                if file[:2] == b"\xff\xd8" and self._refuses(file):
                    raise RuntimeError("the decoder refuses this image")
                if file[:2] == b"\xff\xd8" and self._blackens(file, self.runs):
                    self.blackened += 1
                    row = row.copy()
                    row[len(row) // 2 :] = 0
                out.append(row)
            return out

        image = decode(*inputs, **options)
        return self._fn.python_function(image, inputs[0], function=changed, batch_processing=True, output_layouts="HWC")
