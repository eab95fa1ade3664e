"""What `verify` finds is what a chain finds: the same records, for the same reasons, under the same identity."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.extract.examples.encode import encode_example
from gpupipe.extract.finder import find
from gpupipe.tools.verify import image_features, verify
from tests.chains.damage import bad_scan, bad_tables, bomb, cut, jpeg
from tests.tools.damage import PACK, broken, lines_of, write
from tests.tools.packing import png


def skipping(**options: Any) -> gp.Options:
    return gp.Options(device="cpu", backend="numpy", on_error="skip", lost_files="skip", **options)


def records(ds: gp.Dataset, **options: Any) -> list[Any]:
    with ds.with_options(skipping(**options)).iterator(0) as items:
        return list(items)


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"], ids=["plain", "gzip", "zlib"])
@pytest.mark.parametrize("seed", range(6))
def test_damage_of_any_kind_gives_the_manifest_of_a_chain(tmp_path: Path, compression: Any, seed: int) -> None:
    """Some of the files are damaged before they are compressed, some after."""
    rng = np.random.default_rng((seed, len(compression)))
    for number in range(3):
        path = tmp_path / f"{number}.tfrecord"
        sizes = rng.integers(0, 300 if number else 5000, 40)
        data = write(path, [rng.integers(0, 256, n, np.uint8).tobytes() for n in sizes])
        inside = bool(rng.integers(0, 2))
        data = PACK[compression](broken(data, rng) if inside else data)
        path.write_bytes(data if inside else broken(data, rng))
    read = partial(gp.TFRecordDataset, compression_type=compression)
    chain = gp.Dataset.list_files(str(tmp_path / "*.tfrecord"), shuffle=False).interleave(read, cycle_length=2)
    of_chain, of_verify = tmp_path / "chain.jsonl", tmp_path / "verify.jsonl"
    good = records(chain, error_manifest=of_chain)

    report = verify(
        find([str(tmp_path / "*.tfrecord")], "test").files, compression=compression, manifest=str(of_verify)
    )

    assert lines_of(of_verify) == lines_of(of_chain)
    assert report.bad == len(lines_of(of_chain))
    lost = [line for line in lines_of(of_chain) if line["unit"] == "file"]
    assert report.records == len(good) + report.bad - len(lost)
    assert records(chain, bad_records=of_verify) == good


def test_a_chain_with_the_manifest_leaves_out_what_was_found_and_nothing_else(tmp_path: Path) -> None:
    """The chain decodes nothing, so that without the manifest it would give the records with damaged images."""
    kinds = {2: bad_scan, 5: cut, 11: bad_tables, 12: bomb}
    images = [kinds.get(n, bytes)(jpeg(n)) for n in range(16)]
    write(tmp_path / "a.tfrecord", [encode_example({"image": image, "n": n}) for n, image in enumerate(images)])
    manifest = tmp_path / "bad.jsonl"
    ds = gp.TFRecordDataset(tmp_path / "a.tfrecord")
    whole = records(ds)

    files = find([str(tmp_path / "a.tfrecord")], "test").files
    report = verify(files, features=image_features(files, None), manifest=str(manifest))

    assert len(whole) == 16
    assert report.bad == 4
    assert records(ds, bad_records=manifest) == [record for n, record in enumerate(whole) if n not in kinds]


@pytest.mark.parametrize("threads", [1, 3])
def test_images_are_bad_for_the_reasons_of_a_chain_that_decodes_them(tmp_path: Path, threads: int) -> None:
    rng = np.random.default_rng(threads)
    damaged: list[Any] = [bytes, bytes, bad_scan, bad_tables, bomb, cut, lambda data: broken(data, rng), lambda _: b""]
    rows = [{"image": damaged[n % len(damaged)](jpeg(n)), "n": n} for n in range(60)]
    rows += [{"image": png(7, 9), "n": 60}, {"n": 61}, {"image": 4, "n": 62}]
    payloads = [b"damaged", *map(encode_example, rows), b"no example", b"damaged"]
    data = bytearray(write(tmp_path / "a.tfrecord", payloads))
    data[12] ^= 1
    data[-5] ^= 1
    (tmp_path / "a.tfrecord").write_bytes(data)
    features = {"image": gp.io.FixedLenFeature((), bytes)}

    def pixels(record: Any) -> Any:
        return ops.decode_image(gp.io.parse_single_example(record, features)["image"], channels=3)

    chain = gp.Dataset.list_files(str(tmp_path / "*.tfrecord")).flat_map(gp.TFRecordDataset).map(pixels)
    records(chain, error_manifest=tmp_path / "chain.jsonl")
    files = find([str(tmp_path / "*.tfrecord")], "test").files

    report = verify(files, features=["image"], manifest=str(tmp_path / "verify.jsonl"), workers=threads)

    assert report.bad > 30
    assert lines_of(tmp_path / "verify.jsonl") == lines_of(tmp_path / "chain.jsonl")
    offsets = [line["offset"] for line in map(json.loads, (tmp_path / "verify.jsonl").read_text().splitlines())]
    assert offsets == sorted(offsets)


def test_the_image_features_are_found_in_the_first_records(tmp_path: Path) -> None:
    write(tmp_path / "a", [])
    write(tmp_path / "b", [b"no example", encode_example({"x": 1, "left": jpeg(1), "right": jpeg(2), "name": b"n"})])
    write(tmp_path / "c", [encode_example({"x": 1})])

    assert image_features(find([str(tmp_path / "?")], "test").files, None) == ["left", "right"]
    with pytest.raises(gp.PlanError, match=r"--decode needs records with an image, .* have features x; name"):
        image_features(find([str(tmp_path / "c")], "test").files, None)
    with pytest.raises(gp.PlanError, match="have no tf"):
        image_features(find([str(tmp_path / "a")], "test").files, None)
