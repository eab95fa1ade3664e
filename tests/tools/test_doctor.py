"""What `gpupipe doctor` says of made-up machines: every finding, with the command that mends it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpupipe.tools.doctor.diagnose import Check, diagnose
from gpupipe.tools.doctor.facts import Facts, Unmet
from gpupipe.tools.doctor.known_bad import KNOWN_BAD
from gpupipe.tools.doctor.probe import Answer
from tests.tools.machines import GPU, LAPTOP, on_the_gpu, without

DOCKER = "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility,video IMAGE"
CUDA_12 = "pip install nvidia-dali-cuda120 cupy-cuda12x 'cuda-toolkit[cudart,nvrtc]==12.*'"
CUDA_13 = CUDA_12.replace("cuda12", "cuda13").replace("==12", "==13")
WITHOUT_DALI = "pip uninstall -y nvidia-dali-cuda130 nvidia-nvimgcodec-cu13"
NO_NVCUVID = {"libraries": ["libcuda.so.1", "libnvidia-ml.so.1"]}
NO_CUDA = {"libraries": ["libnvidia-ml.so.1"], "visible": 0}
V100 = {"cards": [{"name": "Tesla V100", "capability": [7, 0]}]}
ON_550 = {"cuda": [12, 4], "driver": "550.54", "executor": "DALI on CPU"}


def contained(facts: Facts) -> Facts:
    return replace(facts, limits=replace(facts.limits, container=True))


def limited(**limits: object) -> Facts:
    return replace(LAPTOP, limits=replace(LAPTOP.limits, **limits))  # type: ignore[arg-type]


def failing(facts: Facts, **errors: str) -> Facts:
    named = {name.replace("_", "-"): Answer(error=error) for name, error in errors.items()}
    return replace(facts, runs=dict(facts.runs) | named)


def with_packages(**versions: str) -> Facts:
    return replace(GPU, packages=dict(GPU.packages) | {n.replace("_", "-"): v for n, v in versions.items()})


def found(facts: Facts, name: str) -> Check:
    (check,) = (check for check in diagnose(facts) if check.name == name)
    return check


def test_a_machine_with_a_gpu_on_which_all_is_well_has_no_warning() -> None:
    assert {check.status for check in diagnose(GPU)} == {"ok"}
    assert found(GPU, "device='auto'").text == "takes DALI on GPU 0: 1 GPU and DALI found"
    assert found(GPU, "JPEG engines").text == "7"
    assert "NVIDIA H200 (compute capability 9.0); driver 580.65.06, which supports CUDA 13.0" in found(GPU, "GPU").text


def test_nothing_is_broken_on_a_machine_without_a_gpu_and_what_is_for_one_is_not_asked() -> None:
    checks = {check.name: check.status for check in diagnose(LAPTOP)}
    assert "problem" not in checks.values()
    assert not checks.keys() & {"CuPy", "JPEG engines", "nvImageCodec"}


@pytest.mark.parametrize(
    ("facts", "name", "status", "words", "command"),
    [
        (replace(GPU, machine=Answer(error="no answer after 120 s")), "GPU", "problem", "no answer after 120 s",
         "nvidia-smi"),
        (contained(replace(LAPTOP, card_on_bus=True)), "GPU", "warning", "the container was started without it",
         DOCKER),
        (replace(LAPTOP, card_on_bus=True), "GPU", "warning", "no driver that works is found", "nvidia-smi"),
        (contained(on_the_gpu(**NO_CUDA)), "GPU", "problem", "lacks the driver capability `compute`", DOCKER),
        (on_the_gpu(**NO_CUDA), "GPU", "problem", "libcuda.so.1 is not found", ""),
        (replace(on_the_gpu(visible=0), variables={"CUDA_VISIBLE_DEVICES": ""}), "GPU", "warning",
         "CUDA_VISIBLE_DEVICES='' hides all", "unset CUDA_VISIBLE_DEVICES"),
        (on_the_gpu(cuda=[11, 8], driver="470.1"), "GPU", "problem", "DALI needs CUDA 12, driver 525.60 or later",
         ""),
        (contained(on_the_gpu(**NO_NVCUVID)), "JPEG engines", "warning", "lacks the driver capability `video`",
         DOCKER),
        (on_the_gpu(**NO_NVCUVID), "JPEG engines", "warning", "libnvcuvid.so.1 is not found", ""),
        (failing(GPU, engines="OSError: nvjpegCreateEx returned 6"), "JPEG engines", "warning",
         "nvjpegCreateEx returned 6", ""),
        (replace(GPU, runs=dict(GPU.runs) | {"engines": Answer({"engines": 0})}), "JPEG engines", "ok",
         "none on this card", ""),
        (with_packages(nvidia_dali_cuda120="2.4.0", nvidia_nvimgcodec_cu12="0.10.0"), "DALI", "problem",
         "two wheels are installed",
         "pip uninstall -y nvidia-dali-cuda120 nvidia-dali-cuda130 nvidia-nvimgcodec-cu12 nvidia-nvimgcodec-cu13 && "
         f"{CUDA_13}"),
        (failing(GPU, dali_cpu="ImportError: libdali.so: cannot open"), "DALI", "problem",
         "does not work: ImportError: libdali.so: cannot open", f"{WITHOUT_DALI} && {CUDA_13}"),
        (failing(on_the_gpu(dali=False), dali_cpu="MissingDependencyError: x"), "DALI", "problem",
         "nvidia-dali-cuda130 2.4.0 is installed, but does not work: Python finds none of its files",
         f"{WITHOUT_DALI} && {CUDA_13}"),
        (on_the_gpu(**ON_550), "DALI", "problem",
         "nvidia-dali-cuda130 2.4.0 is built for CUDA 13, and the driver supports CUDA 12",
         f"{WITHOUT_DALI} && {CUDA_12}"),
        (replace(without("nvidia-dali-cuda130", facts=on_the_gpu(dali=False)), runs={"numpy": Answer()}), "DALI",
         "problem", "the GPU stays unused", CUDA_13),
        (LAPTOP, "DALI", "warning", "NumPy runs chains", "pip install nvidia-dali-cuda130"),
        (replace(LAPTOP, system="Darwin arm64"), "DALI", "ok", "has no wheels for Darwin", ""),
        (replace(GPU, unmet=[Unmet("nvidia-dali-cuda130 2.4.0", "nvidia-nvimgcodec-cu13<0.10,>=0.9", "0.10.0")]),
         "nvImageCodec", "problem", "needs nvidia-nvimgcodec-cu13<0.10,>=0.9, got 0.10.0",
         "pip install 'nvidia-nvimgcodec-cu13<0.10,>=0.9'"),
        (with_packages(cupy_cuda12x="14.2.0"), "CuPy", "problem", "several are installed",
         f"pip uninstall -y cupy-cuda12x cupy-cuda13x && {CUDA_13}"),
        (without("cupy-cuda13x"), "CuPy", "warning", "DeviceArrays", CUDA_13),
        (without("cupy-cuda13x", "nvidia-dali-cuda130", facts=with_packages(nvidia_dali_cuda120="2.4.0")), "CuPy",
         "warning", "DeviceArrays", CUDA_12),
        (without("cupy-cuda13x", facts=with_packages(cupy_cuda12x="14.2.0")), "CuPy", "problem",
         "cupy-cuda12x 14.2.0 is for another CUDA than DALI, which is for CUDA 13",
         f"pip uninstall -y cupy-cuda12x && {CUDA_13}"),
        (failing(GPU, cupy="its process crashed (SIGSEGV)"), "CuPy", "problem", "crashed (SIGSEGV)",
         f"pip uninstall -y cupy-cuda13x && {CUDA_13}"),
        (failing(replace(LAPTOP, packages=dict(LAPTOP.packages) | {"cupy-cuda12x": "14"}), cupy="ImportError: x"),
         "CuPy", "warning", "does not work", "pip uninstall -y cupy-cuda12x"),
        (failing(GPU, dali_gpu="PixelError: wrong"), "DALI on GPU", "problem", "PixelError: wrong", "nvidia-smi"),
        (failing(LAPTOP, numpy="ImportError: x"), "NumPy on CPU", "problem", "ImportError: x",
         "pip install --force-reinstall numpy pillow simplejpeg crc32c"),
        (replace(LAPTOP, machine=Answer({"visible": 0, "libraries": [], "trouble": "ImportError: blocked"})),
         "device='auto'", "problem", "ImportError: blocked", ""),
        (replace(LAPTOP, unmet=[Unmet("gpupipe-dali 0.1.0", "pillow>=10.3", "9.5.0")]), "packages", "warning",
         "gpupipe-dali 0.1.0 needs pillow>=10.3, got 9.5.0", "pip install 'pillow>=10.3'"),
        (replace(LAPTOP, unmet=None), "packages", "ok", "were not compared", ""),
        (contained(limited(cpus=64, quota=4.0)), "CPUs", "warning", "Options(threads=4)",
         "docker run --cpuset-cpus=0-3 IMAGE"),
        (contained(limited(memory_limit=1 << 30)), "memory", "warning", "1.0 GiB of 128.0",
         "docker run --memory=2g IMAGE"),
        (contained(limited(shared_memory=64 << 20)), "shared memory", "warning", "64 MiB",
         "docker run --shm-size=1g IMAGE"),
        (limited(shared_memory=64 << 20), "shared memory", "warning", "64 MiB",
         "sudo mount -o remount,size=1g /dev/shm"),
        (limited(open_files=256), "open files", "warning", "at most 256", "ulimit -n 4096"),
    ],
)  # fmt: skip
def test_a_finding_names_its_remedy(facts: Facts, name: str, status: str, words: str, command: str) -> None:
    check = found(facts, name)

    assert check.status == status
    assert words in check.text
    assert check.command == command


@pytest.mark.parametrize(
    ("facts", "name", "status"),
    [
        (on_the_gpu(**V100), "DALI for CUDA 13 on a card older than Turing", "problem"),
        (on_the_gpu(cards=[{"name": "RTX 5090", "capability": [12, 0]}]), "JPEG engines of RTX 50xx cards", "warning"),
        (with_packages(nvidia_nvimgcodec_cu13="0.9.0.20"), "regions of JPEGs with nvImageCodec 0.9.0", "ok"),
    ],
)
def test_what_is_known_to_go_wrong_together_is_told_with_its_source(facts: Facts, name: str, status: str) -> None:
    check = found(facts, "known trouble")

    assert check.status == status
    assert check.text.startswith(name)
    assert "https://" in check.text
    assert status != "problem" or CUDA_12 in check.command


def test_every_known_trouble_has_a_public_source_and_is_absent_from_a_good_machine() -> None:
    assert all(known.source.startswith("https://") for known in KNOWN_BAD)
    assert not any(known.found(GPU) or known.found(LAPTOP) for known in KNOWN_BAD)


def test_commands_name_the_python_that_is_used() -> None:
    facts = replace(LAPTOP, pip="/opt/py/bin/python -m pip")

    assert found(facts, "DALI").command == "/opt/py/bin/python -m pip install nvidia-dali-cuda130"
