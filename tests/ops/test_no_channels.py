"""Images without channels, as masks [0,H,W] of an image without objects become: DALI's flip of one ends the process.

And images whose number of channels is known only when the chain runs: executors move or refuse the same ones.
"""

from __future__ import annotations

import os
import subprocess
import sys

from gpupipe.transform.machine import has_dali, has_fast
from tests.chains.data import ROOT

SCRIPT = """
import sys
import numpy as np
from gpupipe import Dataset, Options, TensorSpec, ops
from tests.ops.test_result_dtypes import CALLS

MOVING = {name: CALLS[name] for name in (
    "autocontrast", "flip_left_right", "flip_up_down", "random_crop", "random_flip_left_right", "random_rotation",
    'resize, method="nearest"', "rot90",
)} | {
    "normalize": lambda x: ops.normalize(x, 3, 2),
    "pad": lambda x: ops.pad(x, 3, padding_mode="reflect"),
    "rot90 twice": lambda x: ops.rot90(x, 2),
}
SPEC = (TensorSpec((None, None, 3), "uint8"), TensorSpec((None, None, None), "uint8"))
RESAMPLING = {name: CALLS[name] for name in (  # the pixels of others differ between executors
    "adjust_sharpness", "elastic", "random_perspective", "random_resized_crop", "resize",
)} | {
    "random_affine": lambda x: ops.random_affine(x, 30, interpolation="bilinear"),
    "random_perspective, nearest": lambda x: ops.random_perspective(x, p=1, interpolation="nearest"),
}
REFUSING = {name: CALLS[name] for name in (  # what has a number of channels that they are not defined for
    "adjust_hue", "adjust_saturation", "adjust_jpeg_quality", "clahe", "gaussian_noise", "normalize",
)} | {
    "normalize, channels first": lambda x: ops.normalize(ops.transpose(x, "CHW"), 1, (1, 2, 3), layout="CHW"),
    "normalize, mirrored": lambda x: ops.normalize(ops.random_flip_left_right(x), (1, 2, 3), (1, 2, 3)),
}
draw = np.random.default_rng(0).integers

for counts in ((3, 0, 1), (0, 0), (4, 2)):
    pairs = [(draw(0, 9, (40, 60, 3), np.uint8), draw(0, 9, (n, 40, 60), np.uint8)) for n in counts]
    chain = Dataset.from_generator(lambda: iter(pairs), output_signature=SPEC).with_options(
        Options(device="cpu", backend=sys.argv[1], seed=1)
    )
    for name, move in MOVING.items():
        alone = chain.map(lambda image, masks: move(ops.transpose(masks, "HWC")))
        beside = chain.map(lambda image, masks: move(ops.Sample(image, masks=ops.transpose(masks, "HWC"))))
        for made in (list(alone), [sample.masks for sample in beside]):
            print(name, [x.shape for x in made], [hash(x.tobytes()) for x in made])
    for name, move in RESAMPLING.items():
        print(name, [x.shape for x in chain.map(lambda image, masks: move(ops.transpose(masks, "HWC")))])
    kept = chain.with_options(Options(on_error="skip"))
    for name, move in REFUSING.items():
        print(name, [x.shape for x in kept.map(lambda image, masks: move(ops.transpose(masks, "HWC")))])
"""


def _printed(backend: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SCRIPT, backend]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=ROOT)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    return run.stdout


def test_masks_of_images_without_objects_are_moved_alike_on_every_executor() -> None:
    numpy = _printed("numpy")

    assert "flip_left_right [(40, 60, 3), (40, 60, 0), (40, 60, 1)]" in numpy
    assert "gaussian_noise [(40, 60, 3), (40, 60, 1)]" in numpy
    assert "gaussian_noise [(40, 60, 4), (40, 60, 2)]" in numpy
    assert "normalize [(40, 60, 3)]" in numpy
    assert "rot90 [(60, 40, 0), (60, 40, 0)]" in numpy
    for backend in ["fast"] * has_fast() + ["dali"] * has_dali():
        assert _printed(backend) == numpy
