"""The GPU's memory and load while something runs, with a driver that is made up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gpupipe.comparison.usage import gpu, nvml
from gpupipe.comparison.usage.gpu import GpuUse, GpuWatch


class Driver:
    """Reports more memory and load each time."""

    def __init__(self) -> None:
        self.asked = 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        memory._obj.used = (100 + self.asked) << 20
        return 0

    def nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:
        rates._obj[0] = 20 * self.asked
        self.asked += 1
        return 0

    def nvmlDeviceGetJpgUtilization(self, handle: Any, load: Any, period: Any) -> int:
        return 3  # not supported


def test_a_watch_sees_the_rise_of_memory_and_the_mean_load(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()

    @contextlib.contextmanager
    def opened() -> Iterator[Any]:
        yield driver

    monkeypatch.setattr(gpu, "opened", opened)
    monkeypatch.setattr(gpu, "INTERVAL", 0.001)

    with GpuWatch() as watch:
        while driver.asked < 3:
            pass

    use = watch.use
    assert use.peak == (driver.asked - 1) << 20
    assert use.load == pytest.approx(0.1 * (driver.asked - 1))  # 0, 20, 40 ... percent
    assert use.jpeg_load is None


def test_without_a_driver_nothing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", missing)

    with GpuWatch() as watch:
        pass

    assert watch.use == GpuUse()


def card_driver() -> Any:
    """An NVML of two cards, whose functions fill in what they are handed; the second card is partitioned."""

    def gives(*values: Any) -> Any:
        def function(handle: Any, *places: Any) -> int:
            for value, place in zip(values, places, strict=False):
                getattr(place, "_obj", place).value = value(handle) if callable(value) else value
            return 0

        return function

    def memory(handle: Any, found: Any) -> int:
        found._obj.total, found._obj.used = 80 << 30, handle.value << 20
        return 0

    return SimpleNamespace(
        nvmlInit_v2=lambda: 0,
        nvmlShutdown=lambda: 0,
        nvmlDeviceGetCount_v2=lambda count: gives(2)(None, count),
        nvmlDeviceGetHandleByIndex_v2=gives(lambda index: 100 + index.value),
        nvmlDeviceGetName=gives(lambda handle: b"A card %d" % handle.value),
        nvmlSystemGetDriverVersion=lambda text, size: gives(b"580.65.06")(None, text),
        nvmlSystemGetCudaDriverVersion_v2=lambda version: gives(13010)(None, version),
        nvmlDeviceGetCudaComputeCapability=gives(9, 0),
        nvmlDeviceGetMemoryInfo=memory,
        nvmlDeviceGetMigMode=gives(lambda handle: int(handle.value == 101)),
        nvmlDeviceGetJpgUtilization=gives(42),
    )


def test_cards_are_read_off_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: card_driver())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")

    assert nvml.cards() == [
        nvml.Card("A card 100", 81920, "9.0", "580.65.06", "13.1", False),
        nvml.Card("A card 101", 81920, "9.0", "580.65.06", "13.1", True),
    ]
    assert (nvml.memory_used(), nvml.jpeg_load()) == (101, 42)


@pytest.mark.parametrize("refuses", [True, False], ids=["refuses", "is missing"])
def test_without_a_driver_there_are_no_cards(refuses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> Any:
        if refuses:
            return SimpleNamespace(nvmlInit_v2=lambda: 9)
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", load)

    assert (nvml.cards(), nvml.memory_used(), nvml.jpeg_load()) == ([], 0, None)
