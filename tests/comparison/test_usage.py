"""The GPU's memory and load while something runs, with a driver that is made up."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from gpupipe.comparison.usage import gpu, nvml
from gpupipe.comparison.usage.gpu import GpuUse, GpuWatch
from tests.tools.machines import gives


def test_a_watch_sees_the_rise_of_memory_and_the_mean_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver reports more memory and load each time."""

    def memory(handle: Any, found: Any) -> int:
        found._obj.used = (100 + driver.asked) << 20
        return 0

    def rates(handle: Any, found: Any) -> int:
        found._obj[0] = 20 * driver.asked
        driver.asked += 1
        return 0

    driver: Any = SimpleNamespace(asked=0, nvmlDeviceGetHandleByIndex_v2=gives())
    driver.nvmlDeviceGetMemoryInfo, driver.nvmlDeviceGetUtilizationRates = memory, rates
    driver.nvmlDeviceGetJpgUtilization = gives(status=3)  # not supported
    monkeypatch.setattr(gpu, "opened", lambda: contextlib.nullcontext(driver))
    monkeypatch.setattr(gpu, "INTERVAL", 0.001)

    with GpuWatch() as watch:
        while driver.asked < 3:
            pass

    use = watch.use
    assert use.peak == (driver.asked - 1) << 20
    assert use.load == pytest.approx(0.1 * (driver.asked - 1))  # 0, 20, 40 ... percent
    assert use.jpeg_load is None


def card_driver() -> Any:
    """An NVML of two cards, the second of which is partitioned."""

    def memory(handle: Any, found: Any) -> int:
        found._obj.total, found._obj.used = 80 << 30, handle.value << 20
        return 0

    return SimpleNamespace(
        nvmlInit_v2=gives(),
        nvmlShutdown=gives(),
        nvmlDeviceGetCount_v2=gives(2),
        nvmlDeviceGetHandleByIndex_v2=gives(None, lambda index, _: 100 + index.value),
        nvmlDeviceGetName=gives(None, lambda handle, *_: b"A card %d" % handle.value),
        nvmlSystemGetDriverVersion=gives(b"580.65.06"),
        nvmlSystemGetCudaDriverVersion_v2=gives(13010),
        nvmlDeviceGetCudaComputeCapability=gives(None, 9, 0),
        nvmlDeviceGetMemoryInfo=memory,
        nvmlDeviceGetMigMode=gives(None, lambda handle, *_: int(handle.value == 101)),
        nvmlDeviceGetJpgUtilization=gives(None, 42),
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
    with GpuWatch() as watch:
        pass
    assert watch.use == GpuUse()
