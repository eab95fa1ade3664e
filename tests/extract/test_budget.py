"""The budget of large images that are decoded at the same time, by itself and in the host's decoder."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gpupipe.errors import RecordError
from gpupipe.extract.images import budget, pillow
from gpupipe.extract.images.budget import LARGE, Budget, Kept, decoding, peak_bytes
from gpupipe.extract.images.decode import as_plain, decode
from gpupipe.extract.storage.waiting import LIMITS, Limits
from gpupipe.ops._shared.decoding import files
from gpupipe.threads import Thread


def _until(ready: Any) -> None:
    end = time.monotonic() + 10
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.005)


class _Taker:
    """A thread that takes a share, and holds it until told."""

    def __init__(self, shared: Budget, size: int, name: str = "", order: list[str] | None = None) -> None:
        self.has, self.end, self.error = threading.Event(), threading.Event(), None
        self._shared, self._size, self._name, self._order = shared, size, name, order
        self.thread = Thread(self._run, name="taker")
        self.thread.start()

    def _run(self) -> None:
        share = self._shared.take(self._size)
        if self._order is not None:
            self._order.append(self._name)
        self.has.set()
        self.end.wait(10)
        self._shared.give(share)


class TestTheBudget:
    def test_what_does_not_fit_waits_until_another_is_given_back(self) -> None:
        shared = Budget(10)
        first = _Taker(shared, 7)
        assert first.has.wait(5)
        second = _Taker(shared, 6)
        _until(lambda: shared.waiting == 1)

        assert not second.has.wait(0.3)
        first.end.set()
        assert second.has.wait(5)
        second.end.set()
        _until(lambda: (shared.held, shared.waiting) == (0, 0))

    def test_what_fits_goes_at_once(self) -> None:
        shared = Budget(10)

        shares = [shared.take(3) for _ in range(3)]

        assert shared.held == 9
        for share in [*shares, *shares]:
            shared.give(share)
        assert shared.held == 0

    def test_one_goes_alone_however_large(self) -> None:
        shared, started = Budget(10, patience=3), time.monotonic()

        share = shared.take(1000)

        assert time.monotonic() - started < 2
        assert shared.held == 1000
        shared.give(share)

    def test_who_waits_is_served_in_order(self) -> None:
        shared, order = Budget(10), list[str]()
        holder = _Taker(shared, 6)
        assert holder.has.wait(5)
        large = _Taker(shared, 9, "large", order)
        _until(lambda: shared.waiting == 1)
        others = []
        for n in range(3):  # each of them would fit beside the holder
            others.append(_Taker(shared, 2, f"{n}", order))
            _until(lambda n=n: shared.waiting == n + 2)

        time.sleep(0.3)
        assert order == []
        holder.end.set()
        assert large.has.wait(5)
        large.end.set()
        for other in others:
            assert other.has.wait(5)
            other.end.set()
        assert order[0] == "large"
        _until(lambda: shared.held == 0)

    def test_a_wait_ends_with_the_run(self) -> None:
        shared, stopped, errors = Budget(10), threading.Event(), list[BaseException]()
        share = shared.take(8)

        def waits() -> None:
            LIMITS.set(Limits(None, stopped))
            try:
                shared.take(8)
            except RecordError as error:
                errors.append(error)

        thread = Thread(waits, name="waits")
        thread.start()
        _until(lambda: shared.waiting == 1)
        stopped.set()
        thread.join(5)

        assert "its iterator was closed" in str(errors[0])
        assert (shared.waiting, shared.held) == (0, 8)
        shared.give(share)

    def test_a_holder_that_never_ends_keeps_nobody_waiting_forever(self) -> None:
        shared = Budget(10, patience=0.2)
        held = shared.take(8)
        started = time.monotonic()

        other = shared.take(8)

        assert 0.15 < time.monotonic() - started < 5
        assert shared.held == 16
        shared.give(held)
        shared.give(other)

    def test_a_share_that_nobody_has_is_free(self) -> None:
        shared = Budget(10)
        share = shared.take(8)

        del share

        assert shared.held == 0

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_forked_child_has_a_whole_budget(self) -> None:
        shared = Budget(10)
        share = shared.take(8)
        locked, go_on = threading.Event(), threading.Event()

        def holds_the_lock() -> None:
            with shared._room:
                locked.set()
                go_on.wait(10)

        thread = Thread(holds_the_lock, name="holds")
        thread.start()
        assert locked.wait(5)

        child = os.fork()
        if child == 0:
            try:
                shared.take(9)
                shared.give(share)
                os._exit(0 if shared.held <= 9 else 1)
            finally:
                os._exit(2)
        go_on.set()
        thread.join(5)
        end = time.monotonic() + 10
        while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
            time.sleep(0.01)
        if done == (0, 0):
            os.kill(child, 9)
            os.waitpid(child, 0)
        assert done == (child, 0)
        shared.give(share)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Budget]:
    """The budget of the process is one of 1000 bytes, and images from 100 bytes on take part."""
    small = Budget(1000, patience=3)
    monkeypatch.setattr(budget, "BUDGET", small)
    monkeypatch.setattr(budget, "LARGE", 100)
    yield small
    assert (small.held, small.waiting) == (0, 0)


class TestABlockThatDecodes:
    def test_holds_what_it_needs_until_its_end(self, shared: Budget) -> None:
        with decoding(700):
            assert shared.held == 700
        assert shared.held == 0

    def test_of_a_small_image_holds_nothing(self, shared: Budget) -> None:
        with decoding(100):
            assert shared.held == 0

    def test_gives_back_after_an_error(self, shared: Budget) -> None:
        with pytest.raises(ValueError, match="damaged"), decoding(700):
            raise ValueError("damaged")
        assert shared.held == 0

    def test_inside_another_does_not_wait(self, shared: Budget) -> None:
        started = time.monotonic()
        with decoding(700), decoding(600):
            assert shared.held == 1300
        assert time.monotonic() - started < 2

    def test_is_kept_until_a_row_is_done(self, shared: Budget) -> None:
        with Kept() as kept:
            with decoding(700):
                pass
            assert shared.held == 700
            kept.release()
            assert shared.held == 0
            with pytest.raises(ValueError, match="damaged"), decoding(300):
                raise ValueError("damaged")
            assert shared.held == 300
        assert shared.held == 0


def _encoded(kind: str, image: Any, **how: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **how)
    return out.getvalue()


def _photo(mode: str = "RGB") -> Any:
    pixels = np.random.default_rng(1).integers(0, 256, (60, 50, 4), np.uint8)
    return Image.fromarray(pixels[:, :, :3]).convert(mode) if mode != "RGBA" else Image.fromarray(pixels)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF", "BMP"])
@pytest.mark.parametrize("call", [decode, lambda data: as_plain(data, False, False)], ids=["decode", "as_plain"])
def test_every_format_takes_part(kind: str, call: Any, shared: Budget, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    take = shared.take

    def noted(size: int, wait: bool = True) -> Any:
        taken.append(size)
        return take(size, wait)

    monkeypatch.setattr(shared, "take", noted)

    call(_encoded(kind, _photo()))

    assert taken == [peak_bytes(kind.lower(), 60, 50)]


@pytest.mark.parametrize(("name", "file"), [
    *files(),
    *((f"webp {mode} {lossless}", _encoded("WEBP", _photo(mode), lossless=lossless))
      for mode in ("RGB", "RGBA") for lossless in (False, True)),
    ("palette with a clear colour", _encoded("PNG", _photo("P"), transparency=7)),
    ("colours with a clear one", _encoded("PNG", _photo(), transparency=(1, 2, 3))),
    ("tiff", _encoded("TIFF", _photo())),
    ("tiff of 1 bit", _encoded("TIFF", _photo("1"))),
])  # fmt: skip
@pytest.mark.parametrize("channels", [0, 1, 3, 4])
def test_an_image_in_strips_is_the_image(
    name: str, file: bytes, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = decode(file, channels)
    monkeypatch.setattr(pillow, "STRIP", 130)

    np.testing.assert_array_equal(decode(file, channels), whole)


def test_a_damaged_webp_in_strips_is_as_bad_as_a_whole_one(monkeypatch: pytest.MonkeyPatch) -> None:
    file = _encoded("WEBP", _photo(), lossless=True)
    damaged = file[:60] + bytes(len(file) - 60)
    texts = []
    for strip in (1 << 22, 130):
        monkeypatch.setattr(pillow, "STRIP", strip)
        with pytest.raises(Exception, match="damaged WEBP") as caught:
            decode(damaged, 3)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_photographs_take_no_part() -> None:
    assert peak_bytes("jpeg", 4000, 6000) <= LARGE
