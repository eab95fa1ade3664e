"""The GPU's memory and load while something runs, with a driver that is made up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
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

    monkeypatch.setattr(nvml.ctypes, "CDLL", missing)

    with GpuWatch() as watch:
        pass

    assert watch.use == GpuUse()
