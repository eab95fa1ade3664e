"""region_decode: whether a GPU decodes regions of images as it should, tried in a process of its own.

The executor decodes whole images on a GPU unless its number is in `REGION_DECODE`: nvImageCodec 0.9.0 fails to decode
regions on some GPUs (NVIDIA/nvImageCodec#55). This probe says which GPUs could be put there.
"""

from __future__ import annotations

import subprocess
import sys

_PROBE = """
import ctypes, io, sys
import numpy as np
from PIL import Image
from nvidia.dali import Pipeline, fn, types
from nvidia.dali.tensors import TensorCPU, TensorListCPU
files, starts = [], []
for n in range(32):
    ramp = np.add.outer(np.arange(375 + n), np.arange(500 - n))[..., None] * np.array([1, 2, 3]) // 8 % 256
    file = io.BytesIO()
    Image.fromarray(ramp.astype(np.uint8)).save(file, "JPEG", subsampling=n % 3)
    files.append(file.getvalue())
    starts.append([n, 2 * n])
pipeline = Pipeline(batch_size=32, num_threads=2, device_id=int(sys.argv[1]), prefetch_queue_depth=1)
with pipeline:
    data = fn.external_source(name="data", dtype=types.UINT8, ndim=1)
    start = fn.external_source(name="start", dtype=types.INT32, ndim=1)
    window = dict(start=start, shape=[200, 300], axis_names="HW")
    options = dict(device="mixed", adjust_orientation=False, jpeg_fancy_upsampling=True, hw_decoder_load=1.0)
    pipeline.set_outputs(fn.decoders.image_slice(data, **options, **window),
                         fn.slice(fn.decoders.image(data, **options), **window))
pipeline.build()
for _ in range(8):
    pipeline.feed_input("data", TensorListCPU([TensorCPU(file) for file in files], contiguous=False))
    pipeline.feed_input("start", np.array(starts, np.int32))
    a, b = (output.as_cpu().as_array().astype(int) for output in pipeline.run())
    if abs(a - b).max() > 2:
        sys.exit("regions differ from the whole image")
library = next(line.split()[-1] for line in open("/proc/self/maps") if "libnvjpeg.so" in line)
for part in (0, 1):  # MAJOR_VERSION, MINOR_VERSION
    number = ctypes.c_int(-1)
    ctypes.CDLL(library).nvjpegGetProperty(part, ctypes.byref(number))
    print(number.value)
"""


_DECODES_REGIONS = (13, 2)
"""The first nvJPEG that decodes regions with fancy upsampling. What an older one declines DALI gives to libjpeg, on the
host's cores: the pixels are right, but nothing is gained."""


def probe_region_decode(device_id: int) -> bool:
    """Try whether region decode works on a GPU as the ops ask for it; it may crash, so in a process of its own."""
    try:
        done = subprocess.run([sys.executable, "-c", _PROBE, str(device_id)], capture_output=True, timeout=120)
    except subprocess.TimeoutExpired:
        return False
    version = tuple(int(word) for word in done.stdout.split() if word.isdigit())
    return done.returncode == 0 and len(version) == 2 and version >= _DECODES_REGIONS
