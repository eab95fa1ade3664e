"""command_runs: one run of what `benchmarks.commands` measures, in a process of its own; prints its CPU seconds.

Its arguments are the name of the run, the folder that it reads, the folder that it writes, and the checkout whose
gpupipe it needs, "" for any. Only what is measured imports gpupipe.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.checkout import verify as verify_checkout
from benchmarks.process import tree_cpu_seconds

__all__ = ["QUALITY", "RUNS", "SEED", "SHARDS", "SHORTER"]

SHORTER, QUALITY, SHARDS, SEED = 256, 90, 8, 0


def _pack() -> Callable[[Path, Path], Any]:
    from gpupipe.tools.pack.run import pack

    return partial(pack, shards=SHARDS, resize_shorter=SHORTER, quality=QUALITY, seed=SEED, workers=1)


def _bare() -> Callable[[Path, Path], Any]:
    import numpy as np
    from PIL import Image
    from simplejpeg import decode_jpeg, decode_jpeg_header, encode_jpeg

    from benchmarks.tfrecord import example, write_record

    def bare(source: Path, out: Path) -> None:
        with open(out / "all.tfrecord", "wb") as file:
            for path in sorted(source.iterdir()):
                data = path.read_bytes()
                *sides, space, _ = decode_jpeg_header(data)
                height, width = map(int, sides)
                scale = SHORTER / min(height, width)
                if scale < 1:
                    height, width = int(scale * height), int(scale * width)
                    gray = space == "Gray"
                    pixels = decode_jpeg(data, "GRAY" if gray else "RGB", min_height=height, min_width=width)
                    image = Image.fromarray(pixels[:, :, 0] if gray else pixels)
                    small = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
                    small = small.reshape(height, width, -1)
                    data = encode_jpeg(small, QUALITY, "GRAY" if gray else "RGB", "Gray" if gray else "420")
                write_record(file, example(data, 0))

    return bare


class _Named(NamedTuple):
    """A file as `verify` takes it, in every checkout that is compared."""

    path: str
    name: str


def _verify(workers: int) -> Callable[[Path, Path], Any]:
    from gpupipe.tools.verify import verify

    def run(source: Path, out: Path) -> None:
        files: Any = [_Named(str(path), path.name) for path in sorted(source.iterdir())]
        found = verify(files, workers=workers)
        assert not found.bad, found

    return run


RUNS: Mapping[str, Callable[[], Callable[[Path, Path], Any]]] = {
    "pack": _pack,
    "bare": _bare,
    "pack again": _pack,
    "verify": partial(_verify, 1),
    "verify with 2 workers": partial(_verify, 2),
}


def main() -> None:
    """Run what is named; print its CPU seconds."""
    name, source, out, checkout = sys.argv[1:]
    run = RUNS[name]()
    verify_checkout(checkout)
    before = tree_cpu_seconds()
    run(Path(source), Path(out))
    print(json.dumps(tree_cpu_seconds() - before))


if __name__ == "__main__":
    main()
