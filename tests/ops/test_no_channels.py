"""Images without channels, as masks [0,H,W] of an image without objects become: DALI's flip of one ends the process.

And images whose number of channels is known only when the chain runs: executors move or refuse the same ones.
"""

from __future__ import annotations

import os
import subprocess
import sys

from gpupipe.transform.machine import has_dali, has_fast

SCRIPT = """
import sys
import numpy as np
from gpupipe import Dataset, Options, TensorSpec, ops

MOVING = {
    "autocontrast": ops.autocontrast,
    "flip_left_right": ops.flip_left_right,
    "flip_up_down": ops.flip_up_down,
    "normalize": lambda x: ops.normalize(x, 3, 2),
    "pad": lambda x: ops.pad(x, 3, padding_mode="reflect"),
    "random_crop": lambda x: ops.random_crop(x, (20, 20)),
    "random_flip_left_right": lambda x: ops.random_flip_left_right(x, 0.7),
    "random_rotation": lambda x: ops.random_rotation(x, 30),
    "resize": lambda x: ops.resize(x, (20, 20), "nearest"),
    "rot90": ops.rot90,
    "rot90 twice": lambda x: ops.rot90(x, 2),
}
SPEC = (TensorSpec((None, None, 3), "uint8"), TensorSpec((None, None, None), "uint8"))
RESAMPLING = {  # the pixels of others differ between executors
    "adjust_sharpness": lambda x: ops.adjust_sharpness(x, 2),
    "elastic": ops.elastic,
    "random_affine": lambda x: ops.random_affine(x, 30, interpolation="bilinear"),
    "random_perspective": lambda x: ops.random_perspective(x, p=1),
    "random_perspective, nearest": lambda x: ops.random_perspective(x, p=1, interpolation="nearest"),
    "random_resized_crop": lambda x: ops.random_resized_crop(x, (20, 20)),
    "resize": lambda x: ops.resize(x, (20, 20)),
}
REFUSING = {  # what has a number of channels that they are not defined for
    "adjust_hue": lambda x: ops.adjust_hue(x, 0.1),
    "adjust_saturation": lambda x: ops.adjust_saturation(x, 0.5),
    "adjust_jpeg_quality": lambda x: ops.adjust_jpeg_quality(x, 50),
    "clahe": ops.clahe,
    "gaussian_noise": ops.gaussian_noise,
    "normalize 3": lambda x: ops.normalize(x, (1, 2, 3), 2),
    "normalize 3, channels first": lambda x: ops.normalize(ops.transpose(x, "CHW"), 1, (1, 2, 3), layout="CHW"),
    "normalize 3, mirrored": lambda x: ops.normalize(ops.random_flip_left_right(x), (1, 2, 3), (1, 2, 3)),
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
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, backend],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        check=False,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    return run.stdout


def test_masks_of_images_without_objects_are_moved_alike_on_every_executor() -> None:
    numpy = _printed("numpy")

    assert "flip_left_right [(40, 60, 3), (40, 60, 0), (40, 60, 1)]" in numpy
    assert "gaussian_noise [(40, 60, 3), (40, 60, 1)]" in numpy
    assert "gaussian_noise [(40, 60, 4), (40, 60, 2)]" in numpy
    assert "normalize 3 [(40, 60, 3)]" in numpy
    assert "rot90 [(60, 40, 0), (60, 40, 0)]" in numpy
    for backend in ["fast"] * has_fast() + ["dali"] * has_dali():
        assert _printed(backend) == numpy
