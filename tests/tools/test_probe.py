"""Probes: a crash, a hang or an error in a library is an answer, and the driver is asked as its headers say."""

from __future__ import annotations

import ctypes
import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from gpupipe.tools.doctor import facts, probe
from gpupipe.tools.doctor.facts import _card_on_bus, gather
from gpupipe.tools.doctor.probe import Answer, ask, driver, engines
from tests.tools.machines import gives


def test_an_answer_comes_from_a_process_of_its_own() -> None:
    answer = ask("numpy")

    assert (answer.error, answer.found) == ("", {"shape": [2, 64, 64, 3]})
    assert answer.seconds > 0


def test_what_a_library_prints_does_not_disturb_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    line = probe.MARK + json.dumps({"found": {"a": 1}, "seconds": 0.5})
    monkeypatch.setattr(probe, "_CODE", f"print('noise'); print({line!r})".replace("{", "{{").replace("}", "}}"))

    assert ask("numpy") == Answer({"a": 1}, "", 0.5)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "its process crashed (SIGSEGV)"),
        ("import sys; sys.exit('no such symbol')", "its process ended with status 1: no such symbol"),
        ("import time; time.sleep(60)", "no answer after 1 s; its process was killed"),
    ],
    ids=["crash", "exit", "hang"],
)
def test_a_process_that_ends_badly_is_an_answer(monkeypatch: pytest.MonkeyPatch, code: str, error: str) -> None:
    monkeypatch.setattr(probe, "_CODE", code)

    assert ask("numpy", timeout=1).error == error


def test_an_exception_is_an_answer_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> dict[str, Any]:
        raise ImportError("line one\nline two")

    monkeypatch.setattr(probe, "QUESTIONS", {"fails": fails})

    assert probe.main(["fails"]) == 0
    line = capsys.readouterr().out.strip()
    assert json.loads(line.removeprefix(probe.MARK))["error"] == "ImportError: line one line two"


def nvml(**changes: Any) -> Any:
    """NVML of a machine with two cards, one of which is lost, as far as it is asked."""
    functions: dict[str, Any] = {
        "nvmlInit_v2": gives(),
        "nvmlShutdown": gives(),
        "nvmlSystemGetDriverVersion": gives(b"580.65.06"),
        "nvmlSystemGetCudaDriverVersion_v2": gives(13010),
        "nvmlDeviceGetCount_v2": gives(2),
        "nvmlDeviceGetHandleByIndex_v2": lambda index, handle: 15 if index else 0,  # NVML_ERROR_GPU_IS_LOST
        "nvmlDeviceGetName": gives(None, b"NVIDIA H200"),
        "nvmlDeviceGetCudaComputeCapability": gives(None, 9, 0),
    }
    return SimpleNamespace(**functions | changes)


def test_the_driver_names_its_cards_and_one_that_is_lost() -> None:
    assert driver(nvml()) == {
        "driver": "580.65.06",
        "cuda": [13, 1],
        "cards": [{"name": "NVIDIA H200", "capability": [9, 0]}, {"name": "GPU 1, of which the driver says nothing"}],
    }
    assert driver(nvml(nvmlInit_v2=gives(status=9))) == {}


def nvjpeg(created: int = 0, told: int = 0) -> Any:
    """nvJPEG with seven engines, or one that fails."""

    def create(backend: int, device: None, pinned: None, flags: int, handle: Any) -> int:
        assert (backend, flags) == (3, 0)  # NVJPEG_BACKEND_HARDWARE, NVJPEG_FLAGS_DEFAULT
        assert isinstance(handle._obj, ctypes.c_void_p)
        return created

    info = gives(None, 7, 1, status=told)
    return SimpleNamespace(nvjpegCreateEx=create, nvjpegGetHardwareDecoderInfo=info, nvjpegDestroy=Mock())


def test_nvjpeg_tells_the_number_of_engines() -> None:
    library = nvjpeg()

    assert engines(library) == 7
    library.nvjpegDestroy.assert_called_once()
    assert engines(nvjpeg(created=7)) == 0  # NVJPEG_STATUS_ARCH_MISMATCH: a card without engines
    for library in (nvjpeg(created=6), nvjpeg(told=8)):
        with pytest.raises(OSError, match=r"returned [68]"):
            engines(library)


def test_only_what_can_run_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    machine = {"visible": 1, "dali": True, "executor": "DALI on GPU 0", "libraries": []}

    def answer(question: str) -> Answer:
        asked.append(question)
        return Answer(machine if question == "machine" else {})

    monkeypatch.setattr(facts, "ask", answer)
    monkeypatch.setattr(facts, "_versions", lambda: {"cupy-cuda13x": "14"})
    monkeypatch.setattr(facts, "_unmet", lambda packages: [])

    gather()
    assert asked == ["machine", "numpy", "dali-cpu", "dali-gpu", "engines", "cupy"]

    asked.clear()
    machine.update(visible=0, dali=False, executor="NumPy on CPU")
    monkeypatch.setattr(facts, "_versions", dict)
    gather()
    assert asked == ["machine", "numpy"]


def test_requirements_that_are_not_met_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = {
        "gpupipe-dali": ["numpy>=2.0", 'cupy-cuda13x>=14; extra == "cuda13"', 'torch>=2.4; extra == "bench"'],
        "nvidia-dali-cuda130": ["nvidia-nvimgcodec-cu13[all]<0.10.0,>=0.9.0", "six<=1.17"],
        "nvidia-nvimgcodec-cu13": ['nvidia-nvjpeg; extra == "all"'],
        "cupy-cuda13x": [],
    }
    have = {"numpy": "1.26.4", "torch": "2.0", "nvidia-nvimgcodec-cu13": "0.8.0.22", "six": "1.17.0"}
    have["cupy-cuda13x"] = "13.6"
    monkeypatch.setattr("importlib.metadata.requires", lambda name: needs[name])
    monkeypatch.setattr(facts, "_version", have.get)

    found = facts._unmet(dict.fromkeys(needs, "1"))

    assert [(unmet.owner, unmet.requirement, unmet.got) for unmet in found or ()] == [
        ("gpupipe-dali 1", "numpy>=2.0", "1.26.4"),
        ("gpupipe-dali 1", "cupy-cuda13x>=14", "13.6"),
        ("nvidia-dali-cuda130 1", "nvidia-nvimgcodec-cu13<0.10.0,>=0.9.0", "0.8.0.22"),
        ("nvidia-nvimgcodec-cu13 1", "nvidia-nvjpeg", ""),
    ]


@pytest.mark.parametrize(
    ("wheels", "toolkit", "unmet"),
    [
        (["nvidia-dali-cuda120", "cupy-cuda12x"], "13.0.2", ["cuda-toolkit==12.*"]),
        (["nvidia-dali-cuda130", "cupy-cuda13x"], "13.0.2", []),
        (["nvidia-dali-cuda130", "cupy-cuda13x"], "12.9.1", ["cuda-toolkit==13.*"]),
        (["nvidia-dali-cuda130"], "12.9.1", []),
    ],
    ids=["cuda12 with 13", "cuda13", "cuda13 with 12", "cpu"],
)
def test_a_toolkit_is_judged_by_the_extra_that_is_installed(
    wheels: list[str], toolkit: str, unmet: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = {name: list[str]() for name in wheels}
    needs["gpupipe-dali"] = [f'cuda-toolkit=={n}.*; extra == "cuda{n}"' for n in (12, 13)]
    monkeypatch.setattr("importlib.metadata.requires", needs.get)
    monkeypatch.setattr(facts, "_version", lambda name: toolkit)

    assert [found.requirement for found in facts._unmet(dict.fromkeys(needs, "1")) or ()] == unmet


def test_a_card_on_the_bus_is_one_of_nvidia_that_displays(tmp_path: Any) -> None:
    for name, vendor, kind in (("0", "0x8086", "0x030000"), ("1", "0x10de", "0x040300")):  # Intel; NVIDIA's sound
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor + "\n")
        (tmp_path / name / "class").write_text(kind + "\n")
    assert not _card_on_bus(tmp_path)
    assert not _card_on_bus(tmp_path / "none")

    (tmp_path / "1/class").write_text("0x030200\n")  # a 3D controller, as data centre cards are
    assert _card_on_bus(tmp_path)
