"""contestants: the ways of doing the work, one file each.

A contestant's file has `batches(job, **options)`, an iterator of one pass of (images, labels) batches; that of a host
contestant has `passes(job, **options)`, which makes the chain and returns a function that starts a pass. The list below
is the only registration: a name, the file, its options, and the modules it needs (the parent imports none of them).
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.job import Job

__all__ = ["CONTESTANTS", "Contestant", "batches", "has_module", "host_passes", "missing"]

Work = Literal[
    "chain",
    "chain-plain",
    "extract",
    "chain-gpu",
    "approximate",
    "overhead",
    "prepared",
    "chain-uncropped-resize",
    "chain-uncropped-linear",
    "chain-uncropped-center",
    "on-error-dali",
    "on-error-numpy",
    "shuffle",
    "host",
    "flowers",
    "cifar",
]


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to do the work."""

    name: str
    work: Work
    module: str
    label: str
    needs: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    peer: bool = False
    """Whether it takes part only where it is named, or all are: with all of them a comparison takes twice the time."""
    apart: Mapping[str, str] = field(default_factory=dict)
    """In which figures of the audit its work is known to differ, and why. Tables and results say so."""


_DALI = ("nvidia.dali",)
_GPUPIPE = ("gpupipe",)
_TF = ("tensorflow",)
_TORCH = ("torch",)
_GRAIN = ("grain", "PIL")
_KERAS = (*_TF, "keras")
_BEFORE, _AFTER = {"parse": "before"}, {"parse": "after"}
_SKIP = {"on_error": "skip", "manifest": True}
_FAST, _PLAIN = ("cv2", "cykooz_resizer"), {"antialias": False}
_SMALLER = {"smaller": True}
_CPU, _GPU = {"device": "cpu"}, {"device": "gpu"}
_WHOLE, _REGION = {"decode": "whole"}, {"decode": "region"}
_AREA = {"contrast": "it shrinks with a box filter, since OpenCV has no antialiased bilinear one: less work"}
_COARSE = {"contrast": "it decodes with the fast transform, and at a fraction of the size where windows are large"}


def _uncropped(
    work: Literal["chain-uncropped-resize", "chain-uncropped-linear", "chain-uncropped-center"],
) -> tuple[Contestant, ...]:
    """Whole images to one size; torchvision and dataio-rs always normalise and give planes, so not as "linear"."""
    form = work.removeprefix("chain-uncropped-")
    how = {"form": form}
    own = ("fast", "gpupipe, fast", _FAST), ("dali", "gpupipe, DALI on CPU", _DALI), ("numpy", "gpupipe, NumPy", ())
    found = [
        Contestant(f"{form}-{backend}", work, "uncropped_gpupipe", label, _GPUPIPE + needs, how | {"backend": backend})
        for backend, label, needs in own
    ]
    found.append(Contestant(f"{form}-tfdata", work, "uncropped_tf", "tf.data", _TF, how))
    if form != "linear":
        torchvision, label = (*_TORCH, "torchvision"), "torch + torchvision v2"
        found.append(Contestant(f"{form}-torchvision", work, "peers.uncropped_torchvision", label, torchvision, how))
        found.append(Contestant(f"{form}-dataio", work, "peers.uncropped_dataio", "dataio-rs", ("dataio",), how))
    return tuple(found)


_ALL = (
    Contestant("dali", "chain", "dali_chain", "DALI by hand, CPU", _DALI, _CPU | _REGION),
    Contestant("gpupipe-dali", "chain", "gpupipe_chain", "gpupipe, DALI on CPU", _GPUPIPE + _DALI, {"backend": "dali"}),
    Contestant("gpupipe-fast", "chain", "gpupipe_chain", "gpupipe, fast", _GPUPIPE + _FAST, {"backend": "fast"}),
    Contestant("gpupipe-numpy", "chain", "gpupipe_chain", "gpupipe, NumPy", _GPUPIPE, {"backend": "numpy"}),
    Contestant("torch", "chain", "torch_chain", "torch DataLoader + Pillow", ("torch", "PIL")),
    Contestant(
        "torch-alone", "chain", "torch_chain", "torch, no workers", ("torch", "PIL"), {"workers": False}, peer=True
    ),
    Contestant("tfdata", "chain", "tf_chain", "tf.data", _TF),
    Contestant(
        "dali-dynamic", "chain", "peers.dali_dynamic", "DALI, dynamic mode", _DALI, {"capture": False}, peer=True
    ),
    Contestant(
        "dali-captured", "chain", "peers.dali_dynamic", "DALI, dynamic, captured", _DALI, {"capture": True}, peer=True
    ),
    Contestant(
        "torchvision", "chain", "peers.torchvision_chain", "torch + torchvision v2", (*_TORCH, "torchvision"), peer=True
    ),
    Contestant("grain", "chain", "peers.grain_chain", "Grain, threads", _GRAIN, {"workers": False}, peer=True),
    Contestant("grain-workers", "chain", "peers.grain_chain", "Grain, processes", _GRAIN, {"workers": True}, peer=True),
    Contestant("spdl", "chain", "peers.spdl_chain", "SPDL, FFmpeg", ("spdl",), {"decoder": "ffmpeg"}, peer=True),
    Contestant(
        "spdl-pillow", "chain", "peers.spdl_chain", "SPDL, Pillow", ("spdl", "PIL"), {"decoder": "pillow"}, peer=True
    ),
    Contestant("opencv", "chain", "peers.opencv_chain", "OpenCV loop, threads", ("cv2",), peer=True, apart=_AREA),
    Contestant(
        "turboloader", "chain", "peers.turboloader_chain", "TurboLoader", ("turboloader",), peer=True, apart=_COARSE
    ),
    Contestant("ffcv", "chain", "peers.ffcv_chain", "FFCV", ("ffcv", *_TORCH), peer=True, apart=_AREA),
    Contestant("plain-dali", "chain-plain", "dali_chain", "DALI by hand, CPU", _DALI, _CPU | _REGION | _PLAIN),
    Contestant(
        "plain-gpupipe-dali",
        "chain-plain",
        "gpupipe_chain",
        "gpupipe, DALI on CPU",
        _GPUPIPE + _DALI,
        _PLAIN | {"backend": "dali"},
    ),
    Contestant(
        "plain-gpupipe-fast",
        "chain-plain",
        "gpupipe_chain",
        "gpupipe, fast",
        _GPUPIPE + _FAST,
        _PLAIN | {"backend": "fast"},
    ),
    Contestant(
        "plain-gpupipe-numpy", "chain-plain", "gpupipe_chain", "gpupipe, NumPy", _GPUPIPE, _PLAIN | {"backend": "numpy"}
    ),
    Contestant("plain-tfdata", "chain-plain", "tf_chain", "tf.data", _TF, _PLAIN),
    Contestant("tfdata-exact", "approximate", "tf_chain", "tf.data", _TF),
    Contestant("tfdata-ratio", "approximate", "tf_chain", "tf.data, ratio by the same rule", _TF, _SMALLER),
    Contestant(
        "gpupipe-dali-smaller",
        "approximate",
        "gpupipe_chain",
        "gpupipe, DALI, approximate",
        _GPUPIPE + _DALI,
        {"backend": "dali"} | _SMALLER,
    ),
    Contestant(
        "gpupipe-numpy-smaller",
        "approximate",
        "gpupipe_chain",
        "gpupipe, NumPy, approximate",
        _GPUPIPE,
        {"backend": "numpy"} | _SMALLER,
    ),
    Contestant(
        "gpupipe-fast-smaller",
        "approximate",
        "gpupipe_chain",
        "gpupipe, fast, approximate",
        _GPUPIPE + _FAST,
        {"backend": "fast"} | _SMALLER,
    ),
    Contestant(
        "gpupipe-dali-exact",
        "approximate",
        "gpupipe_chain",
        "gpupipe, DALI on CPU",
        _GPUPIPE + _DALI,
        {"backend": "dali"},
    ),
    Contestant("gpupipe-numpy-exact", "approximate", "gpupipe_chain", "gpupipe, NumPy", _GPUPIPE, {"backend": "numpy"}),
    Contestant("fast-calls", "overhead", "fast_calls", "the same calls alone", _GPUPIPE + _DALI + _FAST),
    Contestant("fast-chain", "overhead", "gpupipe_chain", "gpupipe, fast", _GPUPIPE + _FAST, {"backend": "fast"}),
    Contestant(
        "fast-memory",
        "overhead",
        "gpupipe_chain",
        "gpupipe, fast, nothing read",
        _GPUPIPE + _FAST,
        {"backend": "fast", "memory": True},
    ),
    Contestant("prepared-whole", "prepared", "prepared_gpupipe", "gpupipe, JPEGs as they are", _GPUPIPE),
    Contestant("prepared-small", "prepared", "prepared_gpupipe", "gpupipe, shrunk JPEGs", _GPUPIPE, {"form": "small"}),
    Contestant("prepared-half", "prepared", "prepared_gpupipe", "gpupipe, half decoded", _GPUPIPE, {"form": "half"}),
    Contestant("prepared-decoded", "prepared", "prepared_gpupipe", "gpupipe, decoded", _GPUPIPE, {"form": "decoded"}),
    Contestant("prepared-cache", "prepared", "prepared_gpupipe", "gpupipe, cache(file)", _GPUPIPE, {"cached": True}),
    Contestant(
        "prepared-turboloader", "prepared", "prepared_turboloader", "TurboLoader, decoded (TBL)", ("turboloader",)
    ),
    Contestant("dali-gpu", "chain-gpu", "dali_chain", "DALI by hand, GPU", _DALI, _GPU | _WHOLE),
    Contestant(
        "dali-gpu-fancy", "chain-gpu", "dali_chain", "DALI by hand, GPU, fancy", _DALI, _GPU | _WHOLE | {"fancy": True}
    ),
    Contestant("dali-gpu-roi", "chain-gpu", "dali_chain", "DALI by hand, GPU, regions", _DALI, _GPU | _REGION),
    Contestant("gpupipe-gpu", "chain-gpu", "gpupipe_chain", "gpupipe, DALI on GPU", _GPUPIPE + _DALI, _GPU),
    Contestant("raise-dali", "on-error-dali", "gpupipe_chain", "errors raised", _GPUPIPE + _DALI, {"backend": "dali"}),
    Contestant(
        "skip-dali", "on-error-dali", "gpupipe_chain", "skip, manifest", _GPUPIPE + _DALI, _SKIP | {"backend": "dali"}
    ),
    Contestant("raise-numpy", "on-error-numpy", "gpupipe_chain", "errors raised", _GPUPIPE, {"backend": "numpy"}),
    Contestant(
        "skip-numpy", "on-error-numpy", "gpupipe_chain", "skip, manifest", _GPUPIPE, _SKIP | {"backend": "numpy"}
    ),
    Contestant("tfdata-extract", "extract", "tf_extract", "tf.data, batch then parse", _TF, {"batched": True}),
    Contestant("tfdata-each", "extract", "tf_extract", "tf.data, parse one by one", _TF, {"batched": False}),
    Contestant("gpupipe-extract", "extract", "gpupipe_extract", "gpupipe, the stage", _GPUPIPE, {"form": "stage"}),
    Contestant("gpupipe-elements", "extract", "gpupipe_extract", "gpupipe, elements", _GPUPIPE, {"form": "elements"}),
    Contestant("gpupipe-batches", "extract", "gpupipe_extract", "gpupipe, batches", _GPUPIPE, {"form": "batches"}),
    Contestant("gpupipe-before", "shuffle", "gpupipe_shuffle", "gpupipe, parse before", _GPUPIPE, _BEFORE),
    Contestant("gpupipe-after", "shuffle", "gpupipe_shuffle", "gpupipe, parse after", _GPUPIPE, _AFTER),
    Contestant("tfdata-before", "shuffle", "tf_shuffle", "tf.data, parse before", _TF, _BEFORE),
    Contestant("tfdata-after", "shuffle", "tf_shuffle", "tf.data, parse after", _TF, _AFTER),
    Contestant("gpupipe-host", "host", "host_gpupipe", "gpupipe", _GPUPIPE),
    Contestant("tfdata-host", "host", "host_tf", "tf.data", _TF, {"python": "py_function"}),
    Contestant("tfdata-numpy", "host", "host_tf", "tf.data, numpy_function", _TF, {"python": "numpy_function"}),
    Contestant("flowers-gpupipe", "flowers", "flowers_gpupipe", "gpupipe", _GPUPIPE + _DALI, {"backend": "auto"}),
    Contestant("flowers-gpupipe-numpy", "flowers", "flowers_gpupipe", "gpupipe, NumPy", _GPUPIPE, {"backend": "numpy"}),
    Contestant("flowers-tfdata", "flowers", "flowers_tf", "tf.data", _TF, {"keras": False}),
    Contestant("flowers-keras", "flowers", "flowers_tf", "image_dataset_from_directory", _KERAS, {"keras": True}),
    Contestant("flowers-generator", "flowers", "flowers_generator", "ImageDataGenerator", (*_KERAS, "scipy")),
    Contestant("flowers-torch", "flowers", "flowers_torch", "torch DataLoader + Pillow", ("torch", "PIL")),
    Contestant("cifar-gpupipe", "cifar", "cifar_gpupipe", "gpupipe, NumPy", _GPUPIPE),
    Contestant("cifar-gpupipe-fast", "cifar", "cifar_gpupipe", "gpupipe, fast", _GPUPIPE + _FAST, {"backend": "fast"}),
    Contestant(
        "cifar-gpupipe-dali", "cifar", "cifar_gpupipe", "gpupipe, DALI on CPU", _GPUPIPE + _DALI, {"backend": "dali"}
    ),
    Contestant("cifar-tfdata", "cifar", "cifar_tf", "tf.data", _TF, {"batched": False}),
    Contestant("cifar-tfdata-batched", "cifar", "cifar_tf", "tf.data, whole batches", _TF, {"batched": True}),
    Contestant("cifar-torch", "cifar", "cifar_torch", "torch DataLoader", _TORCH, {"batched": False, "workers": False}),
    Contestant(
        "cifar-torch-workers", "cifar", "cifar_torch", "torch, workers", _TORCH, {"batched": False, "workers": True}
    ),
    Contestant(
        "cifar-torch-batched",
        "cifar",
        "cifar_torch",
        "torch, whole batches",
        _TORCH,
        {"batched": True, "workers": False},
    ),
    *_uncropped("chain-uncropped-resize"),
    *_uncropped("chain-uncropped-linear"),
    *_uncropped("chain-uncropped-center"),
)
CONTESTANTS = {one.name: one for one in _ALL}


def batches(job: Job) -> Iterator[tuple[Any, Any]]:
    """Import the contestant's file and start its pass."""
    contestant = CONTESTANTS[job.contestant]
    module = importlib.import_module(f"benchmarks.contestants.{contestant.module}")
    iterator: Iterator[tuple[Any, Any]] = module.batches(job, **contestant.options)
    return iterator


def host_passes(job: Job) -> Callable[[], Iterator[Any]]:
    """Import a host contestant's file and make its chain; each call of the result starts a pass of batches."""
    contestant = CONTESTANTS[job.contestant]
    module = importlib.import_module(f"benchmarks.contestants.{contestant.module}")
    passes: Callable[[], Iterator[Any]] = module.passes(job, **contestant.options)
    return passes


def missing(contestant: Contestant) -> str:
    """Return which modules of a contestant are not installed, "" if none is missing."""
    absent = [name for name in contestant.needs if not has_module(name)]
    return f"not installed: {', '.join(absent)}" if absent else ""


def has_module(name: str) -> bool:
    """Whether a module is installed, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
