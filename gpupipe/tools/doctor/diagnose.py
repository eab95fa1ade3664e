"""doctor: judges what was found on a machine, and names the command that mends each problem. It asks nothing itself."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from gpupipe.tools.doctor.facts import CORE, CUPY, DALI, NVIMAGECODEC, Facts
from gpupipe.tools.doctor.known_bad import KNOWN_BAD

from ...classes import dataclass
from ...missing import LIBRARIES

__all__ = ["Check", "diagnose"]

GIB = 1 << 30
FEW_FILES = 1024
"""Open files below which a chain of many readers or workers runs out: the usual soft limit of Linux is 1024."""
SMALL_SHARED_MEMORY = 256 << 20
"""Bytes of /dev/shm below which worker processes run out: containers get 64 MiB unless told otherwise."""
SMALL_MEMORY = 2 * GIB
"""Bytes: twice what the queues of a chain may hold (`Options.host_memory`)."""

DRIVERS = "https://www.nvidia.com/drivers"
TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"

Status = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Check:
    """One judgement.

    Attributes:
        name: what was looked at.
        status: "ok"; "warning": gpupipe works, but less well than it could; "problem": something is broken.
        text: what was found, and what follows from it.
        command: what mends it, to be pasted into a shell; "" if nothing has to be mended, or no command does it.
    """

    name: str
    status: Status
    text: str
    command: str = ""


def diagnose(facts: Facts) -> list[Check]:
    """Judge the facts, in the order of `CHECKS`."""
    return [check for judge in CHECKS for check in judge(facts)]


def _gpus(facts: Facts) -> Iterator[Check]:
    found, name = facts.machine.found, "GPU"
    if facts.machine.error:
        yield Check(name, "problem", f"the driver cannot be asked: {facts.machine.error}", "nvidia-smi")
        return
    cards = found.get("cards", [])
    if not cards:
        yield _no_card(facts)
        return
    listed = ", ".join(f"{card['name']}{_capability(card)}" for card in cards)
    cuda = ".".join(map(str, found.get("cuda", ()))) or "unknown"
    text = f"{listed}; driver {found.get('driver', 'unknown')}, which supports CUDA {cuda}"
    if "libcuda.so.1" not in found["libraries"]:
        yield Check(
            name, "problem",
            f"{text}; but CUDA cannot be used: libcuda.so.1 is not found"
            + (", the container lacks the driver capability `compute`" if facts.limits.container else ""),
            DOCKER if facts.limits.container else "",
        )  # fmt: skip
    elif not found.get("visible"):
        hidden = facts.variables.get("CUDA_VISIBLE_DEVICES")
        yield Check(
            name, "warning", f"{text}; but CUDA_VISIBLE_DEVICES={hidden!r} hides all of them",
            "unset CUDA_VISIBLE_DEVICES",
        )  # fmt: skip
    elif _cuda(facts) is not None and (_cuda(facts) or 0) < 12:
        # https://docs.nvidia.com/deeplearning/dali/user-guide/docs/installation.html: 525.60 and 580
        yield Check(name, "problem", f"{text}; DALI needs CUDA 12, driver 525.60 or later: update it, {DRIVERS}")
    else:
        yield Check(name, "ok", text)


def _no_card(facts: Facts) -> Check:
    if not facts.card_on_bus:
        return Check("GPU", "ok", "none, so chains run on the CPU")
    text = "an NVIDIA card is in this machine, but "
    if facts.limits.container:
        return Check(
            "GPU", "warning",
            f"{text}the container was started without it; the host needs the driver and NVIDIA's toolkit, {TOOLKIT}",
            DOCKER,
        )  # fmt: skip
    return Check("GPU", "warning", f"{text}no driver that works is found: install one, {DRIVERS}", "nvidia-smi")


def _capability(card: dict[str, Any]) -> str:
    return f" (compute capability {card['capability'][0]}.{card['capability'][1]})" if "capability" in card else ""


# `video` is not in the default: NVIDIA/CUDALibrarySamples#132.
DOCKER = "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility,video IMAGE"


def _engines(facts: Facts) -> Iterator[Check]:
    answer, name = facts.runs.get("engines"), "JPEG engines"
    if not facts.machine.found.get("visible"):
        return
    if "libnvcuvid.so.1" not in facts.machine.found["libraries"]:
        yield Check(
            name, "warning",
            "the driver's libnvcuvid.so.1 is not found, so engines that decode JPEGs stay unused"
            + (": the container lacks the driver capability `video`" if facts.limits.container else ""),
            DOCKER if facts.limits.container else "",
        )  # fmt: skip
    elif answer is not None and answer.error:
        yield Check(name, "warning", f"nvJPEG does not say how many there are: {answer.error}")
    elif answer is not None:
        count = answer.found["engines"]
        yield Check(name, "ok", f"{count}" if count else "none on this card: its CUDA cores and the CPU decode")


def _dali(facts: Facts) -> Iterator[Check]:
    wheels, name = facts.installed(DALI), "DALI"
    gpu = bool(facts.machine.found.get("visible"))
    versions = ", ".join(f"{wheel} {facts.packages[wheel]}" for wheel in wheels)
    needs, has = _built_for(wheels), _cuda(facts)
    if len(wheels) > 1:
        clashing = [*wheels, *facts.installed(NVIMAGECODEC)]
        yield Check(
            name, "problem",
            f"two wheels are installed, which overwrite one another's files: {versions}",
            f"{_uninstall(facts, clashing)} && {_install(facts)}",
        )  # fmt: skip
    elif not wheels and not facts.machine.found.get("dali"):
        yield _no_dali(facts, gpu)
    elif facts.runs["dali-cpu"].error:
        gone = facts.machine.found.get("dali") is False
        reason = "Python finds none of its files" if gone else facts.runs["dali-cpu"].error
        yield Check(
            name, "problem", f"{versions or 'it'} is installed, but does not work: {reason}",
            f"{_uninstall(facts, [*wheels, *facts.installed(NVIMAGECODEC)])} && {_install(facts)}" if wheels else "",
        )  # fmt: skip
    elif gpu and needs is not None and has is not None and has < needs:
        yield Check(
            name, "problem",
            f"{versions} is built for CUDA {needs}, and the driver supports CUDA {has}",
            f"{_uninstall(facts, [*wheels, *facts.installed(NVIMAGECODEC)])} && {_install(facts)}",
        )  # fmt: skip
    else:
        yield Check(name, "ok", versions or "installed, but not by pip")


def _no_dali(facts: Facts, gpu: bool) -> Check:
    if not facts.system.startswith("Linux"):
        return Check("DALI", "ok", f"not installed: it has no wheels for {facts.system}, so NumPy runs chains")
    if gpu:
        return Check("DALI", "problem", "not installed, so the GPU stays unused", _install(facts))
    from gpupipe.transform.choose import FEW_THREADS

    text = f'not installed, so "fast" or NumPy runs chains; on more than {FEW_THREADS} CPUs DALI is faster'
    return Check("DALI", "warning", text, _install(facts))


def _nvimagecodec(facts: Facts) -> Iterator[Check]:
    """Another minor version than DALI asks for breaks its decoders: NVIDIA/DALI#5712."""
    for unmet in facts.unmet or ():
        if unmet.owner.startswith(DALI) and unmet.requirement.startswith(NVIMAGECODEC):
            yield Check(
                "nvImageCodec", "problem",
                f"{unmet.owner} needs {unmet.requirement}, got {unmet.got or 'none'}; others break its decoders "
                "(https://github.com/NVIDIA/DALI/issues/5712)",
                f"{facts.pip} install {shlex.quote(unmet.requirement)}",
            )  # fmt: skip
            return
    if versions := facts.installed(NVIMAGECODEC):
        yield Check("nvImageCodec", "ok", ", ".join(f"{name} {facts.packages[name]}" for name in versions))


def _cupy(facts: Facts) -> Iterator[Check]:
    found, name = facts.installed(CUPY), "CuPy"
    gpu = bool(facts.machine.found.get("visible"))
    answer, needs = facts.runs.get("cupy"), _built_for(facts.installed(DALI)) if gpu else None
    versions = ", ".join(f"{package} {facts.packages[package]}" for package in found)
    if len(found) > 1:
        yield Check(
            name, "problem", f"several are installed, which overwrite one another's files: {versions}",
            f"{_uninstall(facts, found)} && {_install(facts, needs)}",
        )  # fmt: skip
    elif not found:
        if gpu:
            yield Check(
                name, "warning", "not installed: batches on the GPU are plain DeviceArrays, without arithmetic",
                _install(facts, needs),
            )  # fmt: skip
    elif needs is not None and f"{needs}x" not in found[0] and found[0] != "cupy":
        yield Check(
            name, "problem", f"{versions} is for another CUDA than DALI, which is for CUDA {needs}",
            f"{_uninstall(facts, found)} && {_install(facts, needs)}",
        )  # fmt: skip
    elif answer is not None and answer.error:
        yield Check(
            name, "problem" if gpu else "warning", f"{versions} does not work: {answer.error}",
            f"{_uninstall(facts, found)} && {_install(facts, needs)}" if gpu else _uninstall(facts, found),
        )  # fmt: skip
    else:
        yield Check(name, "ok", versions)


def _known_bad(facts: Facts) -> Iterator[Check]:
    for known in KNOWN_BAD:
        if known.found(facts):
            mend = known.name.startswith("DALI") and f"{_uninstall(facts, facts.installed(DALI))} && {_install(facts)}"
            status: Status = "problem" if mend else "warning" if known.harms else "ok"
            yield Check("known trouble", status, f"{known.name}: {known.text} ({known.source})", mend or "")


def _packages(facts: Facts) -> Iterator[Check]:
    text = ", ".join(f"{name} {facts.packages[name]}" for name in facts.installed(CORE))
    if facts.unmet is None:
        text += "; requirements were not compared, that takes the package `packaging`"
    rest = [u for u in facts.unmet or () if not (u.owner.startswith(DALI) and u.requirement.startswith(NVIMAGECODEC))]
    if not rest:
        yield Check("packages", "ok", text)
        return
    wrong = "; ".join(f"{u.owner} needs {u.requirement}, got {u.got or 'none'}" for u in rest)
    wanted = " ".join(shlex.quote(u.requirement) for u in rest)
    yield Check("packages", "warning", f"{text}; {wrong}", f"{facts.pip} install {wanted}")


def _executors(facts: Facts) -> Iterator[Check]:
    """Say what decoded two JPEGs, and which executor "auto" takes."""
    for question, title in (("dali-gpu", "DALI on GPU"), ("dali-cpu", "DALI on CPU"), ("numpy", "NumPy on CPU")):
        answer = facts.runs.get(question)
        if answer is None or (question == "dali-cpu" and answer.error):  # the latter is told with DALI
            continue
        if not answer.error:
            yield Check(title, "ok", f"decoded two JPEGs in {answer.seconds:.1f} s, with start-up")
        elif question == "dali-gpu":  # DALI itself works, or its own check has told why not: see what the driver says
            text = f"does not run: {answer.error}; until it does, use Options(device='cpu')"
            yield Check(title, "problem", text, "nvidia-smi")
        else:
            command = f"{facts.pip} install --force-reinstall {' '.join(CORE)}"
            yield Check(title, "problem", f"does not run: {answer.error}", command)
    found = facts.machine.found
    if "executor" in found:
        yield Check("device='auto'", "ok", f"takes {found['executor']}: {found['why']}")
    elif "trouble" in found:
        yield Check("device='auto'", "problem", f"cannot choose an executor: {found['trouble']}")


def _cpus(facts: Facts) -> Iterator[Check]:
    limits = facts.limits
    if limits.quota is not None and limits.quota < limits.cpus:
        threads = max(1, int(limits.quota))
        yield Check(
            "CPUs", "warning",
            f"{limits.cpus}, but the control group grants the time of {limits.quota:g}: threads on all of them wait "
            f"for one another; use Options(threads={threads}), or give the container whole CPUs",
            f"docker run --cpuset-cpus=0-{threads - 1} IMAGE" if limits.container else "",
        )  # fmt: skip
    else:
        yield Check("CPUs", "ok", str(limits.cpus))


def _memory(facts: Facts) -> Iterator[Check]:
    limits = facts.limits
    may = limits.memory_limit if limits.memory_limit is not None else limits.memory
    if may is None:
        return
    of = "" if limits.memory_limit is None or limits.memory is None else f" of {limits.memory / GIB:.1f}"
    text = f"{may / GIB:.1f} GiB{of}"
    if may < SMALL_MEMORY:
        less = may // 4 >> 20 << 20
        yield Check(
            "memory", "warning",
            f"{text}: the queues of a chain may hold 1 GiB of it; use Options(host_memory={less}), or give it more",
            f"docker run --memory={SMALL_MEMORY // GIB}g IMAGE" if limits.container else "",
        )  # fmt: skip
    else:
        yield Check("memory", "ok", text)


def _shared_memory(facts: Facts) -> Iterator[Check]:
    limits = facts.limits
    if limits.shared_memory is None:
        return
    text = f"/dev/shm holds {limits.shared_memory >> 20:,} MiB"
    if limits.shared_memory < SMALL_SHARED_MEMORY:
        yield Check(
            "shared memory", "warning",
            f"{text}: too little for map(workers='process') and for PyTorch's DataLoader workers",
            "docker run --shm-size=1g IMAGE" if limits.container else "sudo mount -o remount,size=1g /dev/shm",
        )  # fmt: skip
    else:
        yield Check("shared memory", "ok", text)


def _open_files(facts: Facts) -> Iterator[Check]:
    count = facts.limits.open_files
    if count is None:
        return
    few = count < FEW_FILES
    yield Check(
        "open files", "warning" if few else "ok",
        f"at most {count}" + (": too few for wide interleaves and many workers" if few else ""),
        "ulimit -n 4096" if few else "",
    )  # fmt: skip


def _cuda(facts: Facts) -> int | None:
    """The CUDA major version that the driver supports."""
    found = facts.machine.found.get("cuda")
    return None if not found else int(found[0])


def _built_for(wheels: Sequence[str]) -> int | None:
    """The CUDA major version that the only DALI wheel is built for."""
    return int(wheels[0][-3:-1]) if len(wheels) == 1 else None


def _extra(facts: Facts) -> str:
    """The extra that fits the machine: CUDA 13 needs driver 580 and a card from Turing on."""
    if not facts.machine.found.get("visible"):
        return "cpu"
    old = any(card.get("capability", [9, 0]) < [7, 5] for card in facts.machine.found["cards"])
    return "cuda13" if (_cuda(facts) or 12) >= 13 and not old else "cuda12"


def _install(facts: Facts, cuda: int | None = None) -> str:
    """The command that installs DALI and CuPy, for the CUDA of an installed DALI or for what fits the machine."""
    return f"{facts.pip} install {LIBRARIES[_extra(facts) if cuda is None else f'cuda{cuda}']}"


def _uninstall(facts: Facts, packages: Sequence[str]) -> str:
    return f"{facts.pip} uninstall -y {' '.join(packages)}"


CHECKS: tuple[Callable[[Facts], Iterator[Check]], ...] = (
    _packages, _gpus, _engines, _dali, _nvimagecodec, _cupy, _known_bad, _executors, _cpus, _memory, _shared_memory,
    _open_files,
)  # fmt: skip
