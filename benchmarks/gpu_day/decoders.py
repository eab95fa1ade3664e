"""decoders: DALI pipelines by hand over encoded images, for questions about DALI rather than gpupipe."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.gpu_day.day import Day

__all__ = ["decoding", "differences", "make", "rate", "rows"]

Build = Callable[[Any, Any, str], Any]
"""Makes the outputs of a pipeline from `nvidia.dali.fn`, the encoded images and the device of the decoder."""


def make(day: Day, build: Build, batch: int = 0, threads: int = 0, on_host: bool = False) -> Any:
    """Build a pipeline whose only input is encoded images.

    Args:
        day: gives the device.
        build: makes the outputs.
        batch: most images in a batch; default: the day's.
        threads: CPU threads; default: the day's.
        on_host: decode on the CPU, whatever the device is.
    """
    dali: Any = importlib.import_module("nvidia.dali")
    fn: Any = importlib.import_module("nvidia.dali.fn")
    on_gpu = not day.dry and not on_host
    pipeline = dali.Pipeline(
        batch_size=batch or day.batch,
        num_threads=threads or day.threads,
        device_id=0 if on_gpu else None,
        prefetch_queue_depth=1,
    )
    with pipeline:
        data = fn.external_source(name="data", dtype=dali.types.UINT8, ndim=1, no_copy=True)
        made = build(fn, data, "mixed" if on_gpu else "cpu")
        pipeline.set_outputs(*(made if isinstance(made, tuple) else (made,)))
    pipeline.build()
    return pipeline


def decoding(load: float | None = 1.0, fancy: bool = True, **options: Any) -> Build:
    """Decode whole images.

    Args:
        load: the share of a batch for the JPEG engines, 0..1; None: DALI's default.
        fancy: upsample colours as libjpeg does.
        options: further options of the decoder.
    """

    def build(fn: Any, data: Any, device: str) -> Any:
        hardware = {"hw_decoder_load": load} if device == "mixed" and load is not None else {}
        how = {"device": device, "adjust_orientation": False, "jpeg_fancy_upsampling": fancy, **hardware, **options}
        return fn.decoders.image(data, **how)

    return build


def fed(files: Sequence[bytes]) -> Any:
    """Wrap encoded images for DALI without a copy: the caller must keep them alive."""
    tensors: Any = importlib.import_module("nvidia.dali.tensors")
    return tensors.TensorListCPU([tensors.TensorCPU(data) for data in files], contiguous=False)


def rows(pipeline: Any, files: Sequence[bytes]) -> list[npt.NDArray[Any]]:
    """Run one batch; return its images as uint8[H,W,C]."""
    pipeline.feed_input("data", fed(files))
    pipeline.schedule_run()
    (output,) = pipeline.share_outputs()
    output = output.as_cpu() if hasattr(output, "as_cpu") else output
    found = [np.array(output[i]) for i in range(len(files))]
    pipeline.release_outputs()
    return found


def rate(day: Day, pipeline: Any, files: Sequence[bytes], seconds: float = 2.0, ahead: int = 2) -> dict[str, float]:
    """Measure images per second and CPU-milliseconds per image of a pipeline with `ahead` runs always scheduled."""
    seconds = 0.1 if day.dry else seconds
    batches = [fed([*files[i:], *files[:i]]) for i in (0, 7, 13)]
    count = 0

    def start() -> None:
        pipeline.feed_input("data", batches[count % len(batches)])
        pipeline.schedule_run()

    def end() -> None:
        pipeline.share_outputs()
        pipeline.release_outputs()

    for _ in range(ahead):
        start()
    for _ in range(day.some(3, 1)):
        end()
        start()
    clock, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - clock < seconds:
        end()
        start()
        count += 1
    took, cpu = time.perf_counter() - clock, time.process_time() - cpu
    for _ in range(ahead):
        end()
    images = count * len(files)
    return {"images_s": round(images / took), "cpu_ms": round(cpu / images * 1e3, 4)}


def differences(a: Sequence[npt.NDArray[Any]], b: Sequence[npt.NDArray[Any]]) -> dict[str, float]:
    """Compare two lists of images, in levels of 0..255; `inside` is without the outermost ring of pixels."""
    apart = [np.abs(x.astype(int) - y.astype(int)) for x, y in zip(a, b, strict=True)]
    every = np.concatenate([x.ravel() for x in apart])
    return {
        "most": int(every.max()),
        "inside": max(int(x[1:-1, 1:-1].max(initial=0)) for x in apart),
        "mean": round(float(every.mean()), 4),
        "one_in_1000": int(np.quantile(every, 0.999)),
        "images": sum(bool(x.any()) for x in apart),
    }
