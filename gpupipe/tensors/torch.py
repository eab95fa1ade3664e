"""torch: batches as tensors of PyTorch, in a DataLoader that trainers take as they take PyTorch's own."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler

from ..errors import DeviceError, PlanError, PlanTypeError
from ..log import logger
from ..plan.node import UNKNOWN_CARDINALITY
from ..ragged import Ragged
from ..transform.array import on_gpu
from .lists import in_lists, rows_of
from .loader import Chain, Loader, has_length, image_rank

if TYPE_CHECKING:
    from ..load.converted import ConvertedIterator
    from .accelerate import Prepared

__all__ = ["ToTorch", "TorchLoader"]


class ToTorch:
    """The conversion of a leaf to a tensor; bytes and arrays of them stay what they are.

    Arrays in host memory are not copied unless they are read-only, as those of single elements are. Arrays on a GPU are
    taken over by DLPack: complete, on any stream, on their device.

    Args:
        device: where tensors are put; None: where they are.
        dtype: of floating-point tensors; None: their own.
        rank: least rank of a tensor that gets that dtype.
        non_blocking: copy from the host to a GPU from pinned memory, on a stream of its own, while the GPU computes.
        lists: whether ragged leaves become lists of tensors.
    """

    def __init__(self, device: Any, dtype: Any, non_blocking: bool, rank: int = 0, lists: bool = False) -> None:
        self.device, self.dtype, self.non_blocking, self.rank = device, dtype, non_blocking, rank
        self.lists = lists
        self._stream: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """All but the stream, which is of this process."""
        return {**self.__dict__, "_stream": None}

    def __call__(self, leaf: Any) -> Any:
        if not isinstance(leaf, Ragged):
            return self._converted(leaf, getattr(leaf, "ndim", 0))
        return rows_of(leaf, self._converted(leaf.flat_values, leaf.ndim)) if self.lists else leaf

    def _converted(self, leaf: Any, rank: int) -> Any:
        if on_gpu(leaf):
            tensor = torch.from_dlpack(leaf)
        elif isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind in "biuf":
            array = np.asarray(leaf)
            own = array.flags.writeable and isinstance(leaf, np.ndarray) and min(array.strides, default=0) >= 0
            tensor = torch.from_numpy(array if own else array.copy())
        else:
            return leaf
        if self.dtype is not None and tensor.is_floating_point() and rank >= self.rank:
            tensor = tensor.to(self.dtype)
        if self.device is None or tensor.device == self.device or tensor.device.type == self.device.type == "cpu":
            return tensor  # `to` copies from "cpu" to "cpu:0", the device of Accelerate's ranks
        if self.device.type == "cuda" and tensor.device.type == "cpu" and self.non_blocking:
            return self._copied(tensor)
        return tensor.to(self.device)

    def _copied(self, tensor: Any) -> Any:
        """Copy to a GPU on a stream of its own; the caller's current stream waits for it, the caller does not.

        PyTorch's allocators keep the pinned memory until the copy has ended, and the memory on the GPU until
        the caller's stream has passed the point at which the tensor is dropped.
        """
        if self._stream is None:
            self._stream = torch.cuda.Stream(self.device)
        current = torch.cuda.current_stream(self.device)
        with torch.cuda.stream(self._stream):
            there = tensor.pin_memory().to(self.device, non_blocking=True)
        current.wait_stream(self._stream)
        there.record_stream(current)
        return there


def device_of(device: Any) -> Any:
    """A `torch.device` with its number, checked.

    Raises:
        PlanError: there is no such device.
        DeviceError: PyTorch cannot use it.
    """
    if device is None:
        return None
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise PlanError(f"as_torch needs a device such as 'cpu', 'cuda' or 'cuda:1', got {device!r}") from error
    if found.type != "cuda":
        return found
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise DeviceError(f"as_torch(device={str(found)!r}) needs a GPU that PyTorch can use, found none")
    number = torch.cuda.current_device() if found.index is None else found.index
    if number >= count:
        raise PlanError(f"as_torch(device={str(found)!r}) needs GPU {number}, found {count} (numbered from 0)")
    return torch.device("cuda", number)


def dtype_of(dtype: Any) -> Any:
    """A floating-point `torch.dtype` by its name.

    Raises:
        PlanTypeError: it is not one.
    """
    found: Any = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if dtype is not None and not (isinstance(found, torch.dtype) and found.is_floating_point):
        raise PlanTypeError(f"as_torch needs a floating-point dtype, such as 'bfloat16', got {dtype!r}")
    return found


class _Epochs(Sampler):
    """What trainers tell the epoch: the `sampler` of a loader. It gives nothing, as that of an `IterableDataset`."""

    def __init__(self, loader: TorchLoader) -> None:
        self._loader = loader
        self._shift = 0  # of the loader's epochs against the trainer's
        self._own: tuple[int, int] | None = None  # the last `set_epoch` call from here

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch of the trainer comes.

        That is the number of the next loop, also where a state of the epoch before was loaded: the trainer has ended
        that. Trainers that count from 0 in each process (Fabric) go on from the epoch of a loaded state, or from that
        of the user's `set_epoch`.
        """
        loader = self._loader
        items, request = loader._items, loader.chain._requested_epoch()
        if items is not None and items.continues and (coming := items.epoch) is not None:
            self._shift = 0 if epoch in (coming, coming + 1) else coming - epoch
            if epoch == coming + 1:
                items.leave_rest()
        elif request is not None and request not in (self._own, loader._request):
            self._shift = request[1] - epoch
        else:
            loader.set_epoch(epoch + self._shift)
            self._own = loader.chain._requested_epoch()

    def __iter__(self) -> Iterator[None]:
        return repeat(None)


class _Elements(IterableDataset):
    """What a DataLoader needs as its dataset: it says that elements cannot be had by index."""

    def __init__(self, loader: TorchLoader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        from .accelerate import check_skip

        check_skip(self._loader)
        return iter(self._loader)


class _Sized(_Elements):
    """The same of a loader that has a length: libraries ask whether there is the method."""

    def __len__(self) -> int:
        return len(self._loader)


class TorchLoader(Loader, DataLoader):
    """A dataset as a `torch.utils.data.DataLoader` of the batches that it makes; it has no worker processes.

    Lightning saves and restores its position with a checkpoint. Accelerate's `prepare` divides the batches among the
    ranks and puts them on the rank's device. Its `save_state` holds the position of a run of one process; each of
    several ranks is at a position of its own, and `save_state` has one file for all: save `state_dict()` on every rank.

    Args:
        chain: the dataset.
        device: see `ToTorch`.
        dtype: see `ToTorch`.
        non_blocking: see `ToTorch`.
        lists: see `Dataset.as_torch`.
        of_dataloader: see `_made_again`.
    """

    def __init__(
        self,
        chain: Chain,
        device: Any = None,
        dtype: Any = None,
        non_blocking: bool = True,
        lists: bool = False,
        **of_dataloader: Any,
    ) -> None:
        DataLoader.__init__(self, (_Sized if has_length(chain) else _Elements)(self), batch_size=None)
        # By these Lightning makes it again.
        self.device, self.dtype, self.non_blocking, self.lists = device, dtype, non_blocking, lists
        self._to = ToTorch(device_of(device), dtype_of(dtype), non_blocking, image_rank(chain), lists)
        Loader.__init__(self, chain, "as_torch", self._to)
        if lists:
            self._convert = partial(in_lists, self._convert)
        self._prepared: Prepared | None = None
        if of_dataloader:
            self._made_again(of_dataloader)
        else:
            self.__dict__["sampler"] = _Epochs(self)  # by assignment a DataLoader takes none

    def _made_again(self, of_dataloader: dict[str, Any]) -> None:
        """Take the arguments of a DataLoader: Lightning makes a loader again to predict, and to see few batches often.

        Those batches have to be the same each time, so the loader is of one epoch.

        Raises:
            TypeError: an argument that a DataLoader has not, or that would change the batches.
        """
        known = inspect.signature(DataLoader.__init__).parameters
        for name, value in of_dataloader.items():
            if name not in known or (name in ("sampler", "batch_sampler") and value is not None):
                raise TypeError(f"a loader of as_torch has no argument {name}={value!r}; its chain makes the batches")
        self.chain = self.chain.epoch(self.chain._peeked_epoch())

    def state_dict(self) -> dict[str, Any]:
        """The position, see `Loader.state_dict`."""
        if "lightning.pytorch" in sys.modules and self.chain.cardinality() == UNKNOWN_CARDINALITY:
            logger.warning_once(
                "Lightning takes a batch ahead of a loader whose length is unknown, and saves the position behind it: "
                "a resume leaves that batch out. Say how many batches there are, with assert_cardinality(n) at the end "
                "of the chain",
                about="lightning ahead",
            )
        return super().state_dict()

    @property
    def use_stateful_dataloader(self) -> bool:
        """Accelerate's `save_state` and `load_state` ask for this: whether they hold the position."""
        alone = self._prepared is None or self._prepared.ranks == 1
        if not alone:
            logger.warning(
                "Accelerate has one file for the loaders of all ranks, each of which is at a position of its own: save "
                "loader.state_dict() on every rank, and give it to loader.load_state_dict() after load_state"
            )
        return alone

    def _new(self, epoch: int | None = None) -> ConvertedIterator:
        if self._prepared is None:
            return super()._new(epoch)
        return self._prepared.iterator(self.chain._numbered(self._who, epoch), self._convert)

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Accelerate's `prepare` asks a DataLoader for this and takes one that says True as it is: it has no other way.

        What it would do otherwise is right and slow: rank 0 makes the batches of all ranks and sends them.
        """
        if self._prepared is None:
            from .accelerate import prepared

            found = prepared(self.chain)
            if found is None:
                return False
            self._prepared = found
            self.chain = found.chain
            if self._to.device is None:
                self._to.device = found.device
            self._items, self._coming = None, False
        return True

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, value: bool) -> None:
        """Accelerate sets it for what it has prepared."""
