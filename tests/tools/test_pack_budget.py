"""`pack` within a budget: how many images are decoded, which ones, and that the shards stay within it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpupipe.errors import PlanError
from gpupipe.tools.pack import Packed, pack
from gpupipe.tools.pack.budget import decoded_within
from tests.tools.packing import digests, folder_of, jpeg, packed_records

COUNT, SHARDS, SIDE = 40, 4, 24
FORM: dict[str, Any] = {"resize_shorter": SIDE, "decoded": True}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "photos", COUNT)


def contents(out: Path) -> dict[bytes, tuple[bytes, bytes]]:
    """The format and the bytes of each image, by its name."""
    return {
        bytes(r["image/filename"]): (bytes(r["image/format"]), bytes(r["image/encoded"])) for r in packed_records(out)
    }


def formats(out: Path, packed: Packed) -> list[list[bytes]]:
    """The formats of the images of each shard."""
    found = [bytes(record["image/format"]) for record in packed_records(out)]
    size = COUNT // len(packed.files)
    return [found[start : start + size] for start in range(0, COUNT, size)]


def both(source: Path, tmp_path: Path) -> tuple[Packed, Packed]:
    return (
        pack(source, tmp_path / "encoded", SHARDS, resize_shorter=SIDE),
        pack(source, tmp_path / "decoded", SHARDS, **FORM),
    )


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.95, 1.0])
def test_as_many_images_are_decoded_as_fit(source: Path, tmp_path: Path, share: float) -> None:
    encoded, decoded = both(source, tmp_path)
    budget = encoded.bytes + int(share * (decoded.bytes - encoded.bytes))

    packed = pack(source, tmp_path / "out", SHARDS, **FORM, budget=budget)

    assert packed.bytes <= budget
    assert share * COUNT - 1 <= packed.decoded <= share * COUNT  # images of one size, so the margin is small
    forms = formats(tmp_path / "out", packed)
    assert sum(form.count(b"BMP") for form in forms) == packed.decoded
    assert max(form.count(b"BMP") for form in forms) - min(form.count(b"BMP") for form in forms) <= 1
    wholly = {b"JPEG": contents(tmp_path / "encoded"), b"BMP": contents(tmp_path / "decoded")}
    for name, (form, data) in contents(tmp_path / "out").items():
        assert data == wholly[form][name][1]


def test_the_shards_do_not_depend_on_workers_and_on_what_was_there_before(source: Path, tmp_path: Path) -> None:
    encoded, decoded = both(source, tmp_path)
    how = {**FORM, "budget": (encoded.bytes + decoded.bytes) // 2}
    first = pack(source, tmp_path / "1", SHARDS, **how, workers=1)
    expected = digests(tmp_path / "1")

    pack(source, tmp_path / "3", SHARDS, **how, workers=3)
    first.files[1].unlink()
    again = pack(source, tmp_path / "1", SHARDS, **how)

    assert digests(tmp_path / "3") == digests(tmp_path / "1") == expected
    assert (again.found, again.decoded, again.bytes) == (SHARDS - 1, first.decoded, first.bytes)


def test_a_budget_that_is_too_small_is_refused_and_another_can_be_tried(source: Path, tmp_path: Path) -> None:
    encoded, _ = both(source, tmp_path)
    out = tmp_path / "out"

    with pytest.raises(PlanError, match=r"--budget for 40 images that take 0\.\d MB without --decoded, got 0\.0 MB"):
        pack(source, out, SHARDS, **FORM, budget=1000)
    assert list(out.iterdir()) == []
    assert pack(source, out, SHARDS, **FORM, budget=2 * encoded.bytes).bytes <= 2 * encoded.bytes

    with pytest.raises(PlanError, match=r"--budget was \d+, now 1000\. Repeat"):
        pack(source, out, SHARDS, **FORM, budget=1000)


def test_a_parquet_file_leaves_no_copy_behind(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    table = pa.table({"image": [jpeg(30, 40, n) for n in range(6)], "label": list(range(6))})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")

    with pytest.raises(PlanError, match="--budget for 6 images"):
        pack(tmp_path / "x.parquet", tmp_path / "out", 2, decoded=True, budget=10)

    assert list((tmp_path / "out").iterdir()) == []
    assert pack(tmp_path / "x.parquet", tmp_path / "out", 2, decoded=True, budget=10**6).decoded == 6


def test_images_that_cannot_be_decoded_are_left_out_of_the_sample(source: Path, tmp_path: Path) -> None:
    encoded, decoded = both(source, tmp_path)
    (source / "class0/000.jpg").write_bytes(b"no image")
    budget = (encoded.bytes + decoded.bytes) // 2

    packed = pack(source, tmp_path / "out", SHARDS, **FORM, budget=budget, on_error="skip")

    assert len(packed.skipped) == 1
    assert packed.bytes <= budget
    assert COUNT // 2 - 2 <= packed.decoded <= COUNT // 2 + 1


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"budget": 1000}, "--decoded for --budget"),
        ({"budget": 0, "decoded": True}, "--budget to be an integer of 1"),
        ({"budget": 1e6, "decoded": True}, "--budget to be an integer of 1"),
    ],
)
def test_a_wrong_budget_is_refused_before_anything_is_written(
    source: Path, tmp_path: Path, how: dict[str, Any], words: str
) -> None:
    with pytest.raises(PlanError, match=words):
        pack(source, tmp_path / "out", SHARDS, **how)
    assert not (tmp_path / "out").exists()


def test_images_of_one_size_fill_a_budget_to_its_last_byte() -> None:
    sizes = [(20, 200)] * 3

    assert [decoded_within(budget, sizes, 3) for budget in (60, 239, 240, 419, 420, 599, 600)] == [0, 0, 1, 1, 2, 2, 3]
    assert decoded_within(1, [(9, 1)], 1) == 1  # decoded is the smaller one
    assert decoded_within(1, [], 7) == 7  # every image is bad


@pytest.mark.parametrize(("count", "sample"), [(5000, 64), (100, 64), (64, 64)])
def test_a_budget_holds_for_nearly_every_sample(count: int, sample: int) -> None:
    """Of 400 data sets 2.3 % are expected to take more: 9, with a standard deviation of 3."""
    rng = np.random.default_rng(1)
    over, part = 0, []
    for _ in range(400):
        encoded = rng.lognormal(10, 0.5, count).astype(int)
        more = 8 * encoded + rng.integers(0, 1000, count)
        budget = int(encoded.sum() + 0.4 * more.sum())
        pairs = [(int(encoded[i]), int(encoded[i] + more[i])) for i in range(sample)]
        chosen = decoded_within(budget, pairs, count)
        over += encoded.sum() + more[rng.permutation(count)[:chosen]].sum() > budget
        part.append(chosen / count)

    assert 0 < over <= 21
    assert np.median(part) > 0.3  # the margin leaves three quarters of what could be decoded
