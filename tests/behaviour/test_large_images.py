"""Batches of large images: what their decoding takes at the same time is bounded, and all of them come."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import ops
from gpupipe.extract.images import budget
from gpupipe.extract.images.budget import Budget
from gpupipe.flow.stage import repair

BACKENDS = ("numpy", "fast", "dali")
ROOT = Path(__file__).parents[2]


class _Watched(Budget):
    """A budget that remembers the most that was held."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.peak = self.taken = 0

    def take(self, size: int, wait: bool = True) -> Any:
        share = super().take(size, wait)
        self.taken += 1
        self.peak = max(self.peak, self.held)
        return share


def _file(kind: str, height: int, width: int) -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(pixels).save(out, kind, **({"lossless": True} if kind == "WEBP" else {}))
    return out.getvalue()


def _chain(files: list[bytes], backend: Any, **how: Any) -> Any:
    ds = gp.Dataset.from_tensor_slices(np.array(files, object))
    ds = ds.map(lambda x: ops.resize(ops.decode_image(x, channels=3), (8, 8))).batch(len(files))
    return ds.with_options(gp.Options(device="cpu", backend=backend, threads=4, **how))


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> _Watched:
    """The budget of the process holds two images of 100x100 pixels, and images of more than 20x20 pixels take part."""
    small = _Watched(2 * 8 * 100 * 100)
    for module in (budget, repair):
        monkeypatch.setattr(module, "BUDGET", small)
        monkeypatch.setattr(module, "LARGE", 8 * 20 * 20)
    return small


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("backend", BACKENDS)
class TestABatchOfLargeImages:
    def test_comes_whole_and_within_the_budget(self, backend: str, kind: str, shared: _Watched) -> None:
        files = [_file(kind, 100, 100 - n) for n in range(7)]
        expected = np.stack([ops.resize(ops.decode_image(file, channels=3), (8, 8)) for file in files])
        shared.peak = shared.taken = 0

        (batch,) = _chain(files, backend)

        np.testing.assert_allclose(batch, expected, atol=0.01)
        assert 0 < shared.peak <= shared.most
        assert shared.held == 0

    def test_has_no_place_for_a_small_one(self, backend: str, kind: str, shared: _Watched) -> None:
        (batch,) = _chain([_file(kind, 16, 16)] * 7, backend)

        assert (len(batch), shared.taken) == (7, 0)

    def test_lets_one_through_that_is_larger_than_the_budget(self, backend: str, kind: str, shared: _Watched) -> None:
        files = [_file(kind, 20, 20), _file(kind, 300, 300), _file(kind, 100, 100)]

        (batch,) = _chain(files, backend)

        assert len(batch) == 3
        assert shared.peak >= 8 * 300 * 300
        assert shared.held == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_bad_images_among_large_ones_give_everything_back(backend: str, shared: _Watched) -> None:
    good = [_file("PNG", 100, 100 - n) for n in range(6)]
    bad = good[2][:200] + bytes(len(good[2]) - 200)

    batches = list(_chain([*good[:3], bad, *good[3:]], backend, on_error="skip"))

    assert [len(batch) for batch in batches] == [6]
    assert shared.held == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_iterators_in_turns_do_not_wait_for_each_other(backend: Any, shared: _Watched) -> None:
    files = [_file("PNG", 150, 150)] * 4

    def one() -> Any:
        ds = gp.Dataset.from_tensor_slices(np.array(files, object)).repeat(5)
        ds = ds.map(lambda x: ops.resize(ops.decode_image(x, channels=3), (8, 8))).batch(1)
        return ds.with_options(gp.Options(device="cpu", backend=backend, threads=2))

    assert sum(1 for _ in zip(one(), one(), strict=True)) == 20
    assert shared.held == 0


class TestABatchOfDali:
    def _sizes(self, files: list[bytes], monkeypatch: pytest.MonkeyPatch, **how: Any) -> list[int]:
        from gpupipe.transform.dali.executor import DaliExecutor

        sizes: list[int] = []
        submit = DaliExecutor.submit

        def noted(executor: DaliExecutor, feed: Any) -> None:
            sizes.append(feed.size)
            submit(executor, feed)

        monkeypatch.setattr(DaliExecutor, "submit", noted)
        list(_chain(files, "dali", **how))
        return sizes

    def test_is_divided_where_its_large_images_exceed_the_budget(
        self, shared: _Watched, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        large, small = _file("PNG", 100, 100), _file("PNG", 16, 16)

        assert self._sizes([large, small, large, small, small, large, large, large], monkeypatch) == [5, 2, 1]

    def test_of_small_images_is_whole(self, shared: _Watched, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self._sizes([_file("PNG", 20, 20)] * 200, monkeypatch) == [200]


PROGRAM = """
import io, sys
import numpy as np, gpupipe as gp
from gpupipe import ops
from gpupipe.extract.images import budget
from PIL import Image

budget.BUDGET._most = 1  # one large image at a time
backend, kind, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
out = io.BytesIO()
Image.new("RGB", (6000, 6000), (90, 120, 40)).save(out, kind)
data = out.getvalue()
ds = gp.Dataset.from_tensor_slices(np.array([data] * count, dtype=object))
ds = ds.map(lambda x: ops.resize(ops.decode_image(x, channels=3), (32, 32))).batch(count)
batch = next(iter(ds.with_options(gp.Options(device="cpu", backend=backend, threads=4))))
assert batch.shape == (count, 32, 32, 3)
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


@pytest.mark.alone
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize(("backend", "kind"), [("numpy", "TIFF"), ("fast", "PNG"), ("dali", "TIFF")])
def test_four_large_images_take_the_memory_of_one(backend: str, kind: str) -> None:
    """Beside it are the results of others, and what DALI keeps: less than 10 bytes a pixel, one image more has 7 to 12.

    Without a budget they take 800 MB more, and one BMP for each thread under DALI.
    """

    def peak(count: int) -> int:
        command = [sys.executable, "-W", "ignore", "-c", PROGRAM, backend, kind, str(count)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        return int(done.stdout) << 10

    more = peak(4) - peak(1)

    print(f"{more / 1e6:.0f} MB more")
    assert more < 10 * 36e6
