"""tensors: the methods of `Dataset` that hand its elements over: to NumPy, PyTorch, JAX, CuPy, Keras and TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from ..errors import MissingDependencyError, PlanError
from ..log import logger
from ..plan.batches import last_batch
from ..spec import DatasetSpec
from .running import Running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .. import Dataset
    from ..load.converted import ConvertedIterator
    from ..tensors.keras import KerasLoader
    from ..tensors.loader import Loader
    from ..tensors.torch import TorchLoader

__all__ = ["Tensors", "needs"]


class Tensors(Running):
    """Elements as arrays and tensors of other libraries.

    The objects that `as_torch`, `as_jax`, `as_cupy` and `as_keras` return are loaders: every loop over one is the next
    epoch, `len` is its number of steps, and it has `set_epoch`, `state_dict` and `load_state_dict`. Tuples and dicts
    are kept, and so are bytes, arrays of bytes, and `Ragged` (but see `as_torch(lists=True)`).
    """

    def as_numpy_iterator(self) -> ConvertedIterator:
        """Make an iterator with all leaves on the host: arrays, NumPy scalars and bytes; ragged leaves stay `Ragged`.

        Raises:
            PlanTypeError: a leaf is a dataset, as after `window`.
        """
        from ..load.converted import ConvertedIterator, arrays_of
        from ..transform.array import to_host

        self._refuse_datasets("as_numpy_iterator")
        convert = arrays_of("as_numpy_iterator", to_host)
        return ConvertedIterator(self.plan, self.options().resolve(), self._numbered("as_numpy_iterator"), convert)

    def as_torch(
        self, device: Any = None, *, dtype: Any = None, non_blocking: bool = True, lists: bool = False
    ) -> TorchLoader:
        """Make a `torch.utils.data.DataLoader` of this dataset's elements, as tensors.

        Trainers take it as they take PyTorch's own: Lightning with its position in checkpoints, Accelerate's `prepare`,
        see `gpupipe.tensors.torch.TorchLoader`.
        Batches are not copied: those in host memory share it with their NumPy arrays, those on a GPU are DLPack's.

        Args:
            device: where tensors are put, e.g. "cuda"; by default they stay where they are.
            dtype: of floating-point tensors, e.g. "bfloat16" or `torch.bfloat16`; by default their own. Where the chain
                gives images, of these alone: soft labels and boxes keep theirs.
            non_blocking: copy from the host to a GPU from pinned memory on a stream of its own; the loop does not wait.
            lists: give ragged leaves as lists of tensors, one for each row, and a dict inside of the element that holds
                such leaves as a list of dicts: a batch ``(images, {"boxes": boxes, "labels": labels})`` of
                `ragged_batch` as ``([image, ...], [{"boxes": ..., "labels": ...}, ...])``, which detectors of
                torchvision take; and ``{"pixel_values": images, "labels": {...}}`` keeps its own keys, as those of
                Hugging Face take it. By default they stay `Ragged`.

        Images whose channels come last are logged, once: the layers of PyTorch take them first.

        Raises:
            MissingDependencyError: PyTorch is not installed.
            PlanError: no such device, no floating-point dtype, or a leaf is a dataset.
            DeviceError: PyTorch finds no GPU.
        """
        self._refuse_datasets("as_torch")
        for spec in self.plan.element.specs or ():
            if spec.layout is not None and spec.layout.endswith("HWC"):
                _log_layout(str(spec))
                break
        with needs("as_torch", "torch", "torch"):
            from ..tensors.torch import TorchLoader
        return TorchLoader(cast("Dataset", self), device, dtype, non_blocking, lists)

    def as_jax(self, device: Any = None, *, sharding: Any = None, dtype: Any = None) -> Loader:
        """Make a loader of this dataset's elements, as `jax.Array`.

        Args:
            device: a `jax.Device` or `jax.sharding.Sharding` of this process for the arrays; by default they stay where
                they are, and those in host memory go to JAX's default device.
            sharding: a `jax.sharding.Sharding` of the array that the batches of all processes make together, as in
                `jax.make_array_from_process_local_data`: each process reads its own rows, by ``shard(count, index)``.
            dtype: of floating-point arrays, e.g. "bfloat16"; by default their own. Where the chain gives images, of
                these alone.

        Raises:
            MissingDependencyError: JAX is not installed.
            PlanError: both a device and a sharding, no floating-point dtype, a leaf is a dataset, or with a sharding a
                last batch that may be short.
        """
        self._refuse_datasets("as_jax")
        if device is not None and sharding is not None:
            raise PlanError("as_jax needs a device or a sharding, got both")
        batch = None if sharding is None else last_batch(self.plan)
        if batch is not None and not batch.never_short:
            raise PlanError(
                f"as_jax(sharding=) needs batches of one size, got {batch.describe()} at {batch.line}, whose last "
                "batch may be short; give it drop_remainder=True, or complete the rows with pad_to_cardinality before"
            )
        with needs("as_jax", "jax", "jax"):
            from ..tensors.jax import to_jax
        from ..tensors.loader import image_rank

        return self._loader("as_jax", to_jax(device, sharding, dtype, image_rank(cast("Dataset", self))))

    def as_cupy(self) -> Loader:
        """Make a loader of this dataset's elements, as CuPy arrays; those in host memory are copied to the current GPU.

        Raises:
            MissingDependencyError: CuPy is not installed.
            PlanTypeError: a leaf is a dataset.
        """
        from ..transform.array import to_cupy

        self._refuse_datasets("as_cupy")
        to_cupy(None)
        return self._loader("as_cupy", to_cupy)

    def as_keras(self) -> KerasLoader:
        """Make a `keras.utils.PyDataset`, which Keras 3 takes in `fit`, `evaluate` and `predict`, on each backend.

        An epoch of Keras has as many steps as this dataset has batches, with other random values each time. On the
        backend of PyTorch the batches are tensors, which share the memory of the arrays.

        Raises:
            MissingDependencyError: Keras 3 is not installed.
            PlanTypeError: a leaf is a dataset.
        """
        self._refuse_datasets("as_keras")
        with needs("as_keras", "keras", "keras"):
            from ..tensors.keras import KerasLoader
        return KerasLoader(cast("Dataset", self))

    def as_tf(self) -> Any:
        """Make a `tf.data.Dataset` of the same elements, types and number.

        Each iteration over it is the next epoch, also one over some elements: `take(1)`, or a look at the first one.

        Elements pass through host memory and Python: the chain's steps belong before, in gpupipe.

        Raises:
            MissingDependencyError: TensorFlow is not installed.
            PlanError: the type of a leaf is unknown before the chain runs, or a leaf is a dataset.
        """
        self._refuse_datasets("as_tf")
        with needs("as_tf", "tensorflow", "tensorflow"):
            from ..tensors.tf import as_tf
        return as_tf(cast("Dataset", self))

    def _loader(self, who: str, convert: Callable[[Any], Any]) -> Loader:
        from ..tensors.loader import Loader

        return Loader(cast("Dataset", self), who, convert)

    def _refuse_datasets(self, who: str) -> None:
        for spec in self.plan.element.specs:
            if isinstance(spec, DatasetSpec):
                from ..load.converted import refusal

                raise refusal(who, spec)


@cache
def _log_layout(spec: str) -> None:
    logger.warning(
        "as_torch gives images as %s, channels last, and Conv2d and most layers of PyTorch take them first: end the "
        "map with ops.transpose(image, 'CHW')",
        spec,
    )


@contextmanager
def needs(who: str, package: str, install: str) -> Iterator[None]:
    """Make a missing package an error that says how to install it; one that is there and broken keeps its own."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise MissingDependencyError(
            f"{who} needs {package}, which is not installed; install it with: pip install {install}"
        ) from error
