"""preprocessor: one function on single images and small batches, as a chain computes it, for servers and notebooks."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextvars import copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..arguments import checked_function, integer
from ..dataset.tensors import needs
from ..errors import DataError, PlanTypeError
from ..extract.storage.forking import keep_forever, renew_lock
from ..graph.classify import name_of
from ..options import Options
from ..spec import map_structure

if TYPE_CHECKING:
    from .request import Chain

__all__ = ["Checked", "Preprocessor", "preprocessor"]


class Checked(NamedTuple):
    """The batch of a request, and which of its images are in it.

    Attributes:
        batch: the batch; None if every image is bad.
        valid: bool[N], for each image of the request whether it is good.
        errors: the error of each bad image, by its index in the request.
    """

    batch: Any
    valid: npt.NDArray[np.bool_]
    errors: dict[int, DataError]


class Preprocessor:
    """Computes the batch that ``Dataset.from_list(images).map(fn).batch(len(images))`` gives; see `preprocessor`.

    Threads may share it, and requests run at once. A context manager; `close` ends its threads, and so does the garbage
    collector. In a process that is forked from one that used it, it starts anew, and so does a copy: it can be pickled
    if `fn` can, for processes that are spawned and the workers of a DataLoader.
    """

    def __init__(
        self, fn: Callable[..., Any], options: Options, batch_size: int, convert: Callable[[Any], Any] | None = None
    ) -> None:
        self._fn, self._options, self._batch_size = fn, options, batch_size
        self._convert = convert
        self._parent: Preprocessor | None = None
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        renew_lock(self)
        self._chain = self._start()

    def __getstate__(self) -> dict[str, Any]:
        """What it computes: a copy, also one that is pickled for another process, has threads and executors of its own.

        Raises:
            ClosedError: it was closed.
        """
        (self._parent or self)._chain.check_open()
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_chain")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._parent is None:
            self._begin()

    def _start(self) -> Chain:
        from .request import Chain

        chain = Chain(self._fn, self._options.resolve(), self._batch_size)
        weakref.finalize(self, chain.close, wait=False)
        return chain

    def __call__(self, images: Any, *, start: int = 0) -> Any:
        """Compute the batch of some images.

        Args:
            images: encoded images as bytes or as paths (or URLs) of files, or decoded ones as arrays; a list, or one of
                them, which makes a batch of one. All are encoded or all are arrays of one dtype and rank.
            start: the index of the first image, for random ops: image i draws as element ``start + i`` of the chain in
                epoch 0. So equal requests draw equal numbers, on all threads and whatever came before.

        Returns:
            What `fn` returns, with every leaf stacked: NumPy arrays, on a GPU CuPy arrays as in a chain. With
            ``on_error="skip"`` without the bad images, with "replace" with a good image in the place of each.

        Raises:
            DataError: an image is bad, and `Options.on_error` is "raise", or all of them are bad; names its path or
                index.
            PlanTypeError: something else than images, or images of several kinds.
            ClosedError: it was closed.
        """
        found = self.checked(images, start=start)
        if found.batch is None:
            raise found.errors[min(found.errors)]
        return found.batch

    def checked(self, images: Any, *, start: int = 0) -> Checked:
        """Compute the batch of some images, and say which of them are good.

        Args:
            images: as in a call.
            start: as in a call.

        Raises:
            DataError: an image is bad, and `Options.on_error` is "raise".
            PlanTypeError: something else than images, or images of several kinds.
            ClosedError: it was closed.
        """
        from .images import elements_of, listed

        start = integer("a preprocessor", "start", start, 0)
        given = listed(images)
        chain = self._running()
        elements, spec = elements_of(given, start, chain.key)
        batch, kept, errors = copy_context().run(chain.compute, elements, spec)
        valid = np.zeros(len(given), np.bool_)
        valid[[position - start for position in kept]] = True
        if batch is not None and self._convert is not None:
            batch = map_structure(self._convert, batch)
        return Checked(batch, valid, {position - start: error for position, error in errors.items()})

    def as_torch(self, device: Any = None, *, dtype: Any = None) -> Preprocessor:
        """The same preprocessor with results as tensors of PyTorch. It shares the pipelines, and is closed with them.

        Args:
            device: where tensors are put, e.g. "cuda"; by default they stay where they are, without a copy.
            dtype: of floating-point tensors, e.g. "bfloat16"; by default their own.

        Raises:
            MissingDependencyError: PyTorch is not installed.
            PlanError: no such device, or no floating-point dtype.
            DeviceError: PyTorch finds no GPU.
        """
        with needs("as_torch", "torch", "torch"):
            from ..tensors.torch import ToTorch, device_of, dtype_of
        found = object.__new__(Preprocessor)
        found.__dict__.update(self.__dict__)
        found._parent = self._parent or self
        found._convert = ToTorch(device_of(device), dtype_of(dtype), True)
        return found

    def _running(self) -> Chain:
        """The chain of this process."""
        owner = self._parent or self
        chain = owner._chain
        if chain.pid != os.getpid():
            with owner._lock:
                if owner._chain.pid != os.getpid():
                    keep_forever(owner._chain)  # its threads do not exist here
                    owner._chain = owner._start()
                chain = owner._chain
        return chain

    def close(self) -> None:
        """End all threads. Requests that are being computed may end with a ClosedError."""
        chain = (self._parent or self)._chain
        if chain.pid == os.getpid():
            chain.close()

    def __enter__(self) -> Preprocessor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Preprocessor of {name_of(self._fn)}>"


def preprocessor(
    fn: Callable[..., Any], options: Options | None = None, *, batch_size: int = 64, example: Any = None
) -> Preprocessor:
    """Make an object that preprocesses images as ``map(fn).batch(n)`` does in training, for servers and notebooks.

    Its executors stay warm, and one object serves any number of threads. Random ops draw by (seed, index in the
    request, call), see `Preprocessor.__call__`.

    Args:
        fn: a function of one image, as it is given to `Dataset.map`: of bytes, which an op of `ops.decode_*` decodes,
            or of an array where requests hold arrays.
        options: as those of a chain: where it runs (`device`, `backend`, `threads`), `seed`, and what happens to bad
            images (`on_error`).
        batch_size: the largest number of images that are computed at once; a request of more is computed in parts. It
            bounds memory, and changes no result.
        example: an image to run once here, so that mistakes in `fn` are raised here and the first request is as fast as
            any other.

    Raises:
        PlanTypeError: `fn` is not a function, or `options` are no `Options`.

    Example:
        >>> import numpy as np
        >>> import gpupipe as gp
        >>> with gp.preprocessor(lambda image: gp.ops.resize(image, (2, 2))) as preprocess:
        ...     preprocess([np.zeros((5, 7, 3), np.uint8)]).shape
        (1, 2, 2, 3)
    """
    checked_function("preprocessor", fn)
    if options is not None and not isinstance(options, Options):
        raise PlanTypeError(f"preprocessor needs gpupipe.Options, got {type(options).__name__}")
    size = integer("preprocessor", "batch_size", batch_size, 1)
    made = Preprocessor(fn, options or Options(), size)
    if example is not None:
        try:
            made(example)
        except BaseException:
            made.close()
            raise
    return made
