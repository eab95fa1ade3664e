"""decode: what decoding a JPEG costs and nothing else, on one thread, whole images and windows, beside bare libraries.

Windows are drawn by torchvision's law, the same for all. All runs are in one process: in each round every decoder goes
over all images, and its CPU time is divided by that of libjpeg-turbo (simplejpeg) for whole images in the same round.
Before that the pixels are compared with simplejpeg's.
"""

from __future__ import annotations

import argparse
import glob
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.contestants.torch_chain import window
from benchmarks.equal import UnequalWork
from benchmarks.suites.decoders import DECODERS, Decoder, Window
from gpupipe.comparison.ratios import Spread, ratios

__all__ = ["CLOSE", "add_options", "decode", "photographs"]

REFERENCE = "simplejpeg"
SIZES: Mapping[str, tuple[int, int, int]] = {
    "0.2 MP": (375, 500, 24),
    "1 MP": (864, 1152, 12),
    "3 MP": (1536, 2048, 6),
}
"""Of drawn photographs: height, width, how many."""
CLOSE = 1.0
"""Mean difference of the pixels of two exact decoders, of 255; a fast DCT or copied colours are above it."""


def add_options(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("decode", help="decoding alone: whole images and windows, one thread")
    parser.set_defaults(run=_run)
    parser.add_argument("--data", default="", help="a glob of TFRecord shards; default: drawn photographs of 3 sizes")
    parser.add_argument("--images", type=int, default=0, help="of each size or of --data; 0: 24, 12 and 6, or 100")
    parser.add_argument("--sizes", default="", help=f"out of {', '.join(SIZES)}; default: all")
    parser.add_argument("--pairs", type=int, default=9, help="rounds of all decoders (%(default)s)")


def _run(options: argparse.Namespace, folder: Path) -> int:
    sizes = tuple(options.sizes.split(",")) if options.sizes else tuple(SIZES)
    images = photographs(options.data, sizes, options.images)
    names = tuple(options.contestants.split(",")) if options.contestants else tuple(DECODERS)
    print(f"written to {decode(options.out, images, names, options.pairs, bool(options.data)).name}")
    return 0


def photographs(pattern: str, sizes: Sequence[str], count: int = 0) -> dict[str, list[bytes]]:
    """Return JPEGs with colours: drawn ones by size, or the first ones of some shards.

    Raises:
        UnequalWork: an unknown size.
        FileNotFoundError: nothing matches the pattern.
    """
    from benchmarks.large import encode_photograph
    from benchmarks.tfrecord import entries
    from gpupipe.extract.images.headers import read_header

    if wrong := [name for name in sizes if name not in SIZES]:
        raise UnequalWork(f"decode needs sizes out of {', '.join(SIZES)}, got {', '.join(wrong)}")
    if not pattern:
        return {name: [encode_photograph(i, *SIZES[name][:2]) for i in range(count or SIZES[name][2])]
                for name in sizes}  # fmt: skip
    found: list[bytes] = []
    for path in sorted(glob.glob(pattern)):
        with open(path, "rb") as file:
            for place in entries(path):
                file.seek(place.offset)
                data = file.read(place.length)
                if len(found) < (count or 100) and data[:2] == b"\xff\xd8" and read_header(data).channels == 3:
                    found.append(data)
    if not found:
        raise FileNotFoundError(f"decode needs TFRecord shards with JPEGs, got none for {pattern!r}; correct --data")
    return {"photographs": found}


def decode(
    out: Path, images: Mapping[str, Sequence[bytes]], names: Sequence[str], rounds: int = 9, given: bool = False
) -> Path:
    """Measure, print a table, and write the result file.

    Args:
        out: folder of the result file.
        images: JPEGs by the name of their kind.
        names: in `DECODERS`; simplejpeg, the reference, always takes part.
        rounds: of all decoders.
        given: whether the images are not drawn.

    Raises:
        UnequalWork: an unknown name.
    """
    if wrong := [name for name in names if name not in DECODERS]:
        raise UnequalWork(f"decode needs contestants out of {', '.join(DECODERS)}, got {', '.join(wrong)}")
    decoders, absent = _present([name for name in DECODERS if name in (*names, REFERENCE)])
    summary: dict[str, Any] = {}
    runs: dict[str, Any] = {}
    for kind, datas in images.items():
        places = _windows(datas)
        off = _differences(decoders, datas, places)
        took = _rounds(decoders, datas, places, rounds)
        runs[kind] = took
        summary[kind] = {
            name: {
                **{what: asdict(Spread.of(took[name][what])) for what in ("whole", "window")},
                "whole_ratio": asdict(ratios(took[name]["whole"], took[REFERENCE]["whole"])),
                "window_ratio": asdict(ratios(took[name]["window"], took[REFERENCE]["whole"])),
                "mean_difference": off[name],
                "equal": off[name] <= CLOSE,
                "region": decoders[name].region,
            }
            for name in decoders
        }
        print(table(kind, summary[kind], len(datas)))
    for name, why in absent.items():
        print(f"{DECODERS[name][0]}: {why}")
    settings = {"images": {kind: len(datas) for kind, datas in images.items()}, "rounds": rounds, "drawn": not given}
    document = {**report.header("decode", settings), "reference": REFERENCE, "not_measured": absent,
                "summary": summary, "cpu_ms": runs}  # fmt: skip
    return report.write(document, out)


def _present(names: Sequence[str]) -> tuple[dict[str, Decoder], dict[str, str]]:
    decoders: dict[str, Decoder] = {}
    absent: dict[str, str] = {}
    for name in names:
        try:
            decoders[name] = DECODERS[name][1]()
        except ImportError as error:
            absent[name] = f"not installed: {error}"
        except Exception as error:  # whatever a library raises when it cannot start: the others are measured
            absent[name] = f"failed: {type(error).__name__}: {str(error)[:200]}"
    if REFERENCE in absent:
        raise UnequalWork(f"decode needs its reference {REFERENCE}, got {absent[REFERENCE]}; install it")
    return decoders, absent


def _windows(datas: Sequence[bytes]) -> list[Window]:
    from gpupipe.extract.images.headers import read_header

    rng = random.Random(0)
    found = []
    for data in datas:
        header = read_header(data)
        x, y, w, h = window(header.height, header.width, rng)
        found.append((y, x, h, w))
    return found


def _differences(decoders: Mapping[str, Decoder], datas: Sequence[bytes], places: Sequence[Window]) -> dict[str, float]:
    """The mean difference of each decoder's pixels from the reference's, whole or window, whichever is larger."""
    exact = decoders[REFERENCE]
    calls = (exact.whole(datas), exact.windows(datas, places))
    found = {}
    for name, one in decoders.items():
        both = (one.whole(datas), one.windows(datas, places))
        found[name] = max(
            float(np.mean([np.abs(np.asarray(a).astype(np.int16) - b).mean() for a, b in zip(*pair, strict=True)]))
            for pair in zip(both, calls, strict=True)
        )
    return found


def _rounds(
    decoders: Mapping[str, Decoder], datas: Sequence[bytes], places: Sequence[Window], rounds: int
) -> dict[str, dict[str, list[float]]]:
    """CPU-milliseconds an image, by decoder; every second round is in reverse order."""
    took: dict[str, dict[str, list[float]]] = {name: {"whole": [], "window": []} for name in decoders}
    for number in range(rounds):
        for name in list(decoders)[:: -1 if number % 2 else 1]:
            one = decoders[name]
            start = process_time()
            one.whole(datas)
            middle = process_time()
            one.windows(datas, places)
            end = process_time()
            took[name]["whole"].append((middle - start) / len(datas) * 1e3)
            took[name]["window"].append((end - middle) / len(datas) * 1e3)
    return took


def table(kind: str, found: Mapping[str, Mapping[str, Any]], count: int) -> str:
    """Lay out one kind of images: CPU-milliseconds, and ratios to whole images by the reference."""
    head = (f"{kind}, {count} images", "whole ms", "window ms", "whole ratio", "window ratio", "off by")
    rows: list[tuple[str, ...]] = [head]
    for name, one in found.items():
        mark = ("" if one["region"] else " (cuts whole images)") + ("" if one["equal"] else " *")
        rows.append((
            DECODERS[name][0] + mark,
            *(f"{one[what]['median']:.3f}" for what in ("whole", "window")),
            *(f"{one[what]['median']:.3f} ({one[what]['least']:.3f}-{one[what]['most']:.3f})"
              for what in ("whole_ratio", "window_ratio")),
            f"{one['mean_difference']:.2f}",
        ))  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(c.ljust(w) if not i else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
             for row in rows]  # fmt: skip
    if not all(one["equal"] for one in found.values()):
        lines.append(f"* not equal work: its pixels are off by more than {CLOSE:g} of 255 in the mean")
    return "\n".join(lines)
