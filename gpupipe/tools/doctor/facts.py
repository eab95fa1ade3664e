"""facts: what `gpupipe doctor` judges: installed packages, the driver and its cards, limits, and what really runs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from gpupipe.tools.doctor.limits import Limits, find_limits
from gpupipe.tools.doctor.probe import Answer, ask

from ...classes import dataclass
from ...missing import DISTRIBUTION

__all__ = ["CUPY", "DALI", "NVIMAGECODEC", "Facts", "Unmet", "gather"]

DALI = ("nvidia-dali-cuda120", "nvidia-dali-cuda130")
NVIMAGECODEC = ("nvidia-nvimgcodec-cu12", "nvidia-nvimgcodec-cu13")
CUPY = ("cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x", "cupy")
CORE = ("numpy", "pillow", "simplejpeg", "crc32c")
VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "LD_LIBRARY_PATH")
MARKS = {
    "cpu": ("nvidia-dali-cuda130",),
    "cuda12": ("nvidia-dali-cuda120", "cupy-cuda12x"),
    "cuda13": ("cupy-cuda13x",),
}
"""Packages that show that an extra is installed, by one of them: `cpu` has DALI for CUDA 13 too, and no toolkit."""


@dataclass(frozen=True, slots=True)
class Unmet:
    """A requirement that is not met.

    Attributes:
        owner: the package that has it, and its version.
        requirement: as pip writes it, without a marker.
        got: the installed version; "" if the package is not installed.
    """

    owner: str
    requirement: str
    got: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found on a machine.

    Attributes:
        machine: the answer of the probe of that name: driver, cards, libraries, the executor that "auto" takes.
        runs: the answers of the other probes that were asked.
        packages: installed packages that matter, with their versions.
        unmet: requirements that are not met; None if they could not be compared.
        limits: CPUs, memory, files.
        card_on_bus: whether an NVIDIA GPU is on the PCI bus, whatever the driver says.
        system: name of the operating system and processor.
        variables: environment variables that matter and are set.
        pip: the command that starts pip for this Python.
    """

    machine: Answer
    runs: Mapping[str, Answer] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    unmet: Sequence[Unmet] | None = ()
    limits: Limits = field(default_factory=lambda: Limits(1))
    card_on_bus: bool = False
    system: str = "Linux x86_64"
    variables: Mapping[str, str] = field(default_factory=dict)
    pip: str = "pip"

    def installed(self, names: Sequence[str]) -> list[str]:
        """Those of some packages that are installed."""
        return [name for name in names if name in self.packages]


def gather(progress: Callable[[int, int], None] = lambda done, total: None) -> Facts:
    """Find the facts. Libraries that may crash are asked in processes of their own.

    Args:
        progress: called with the number of probes that have answered, and of all.
    """
    machine = ask("machine")
    packages = _versions()
    dali = machine.found.get("dali") or any(name in packages for name in DALI)
    questions = ["numpy", *(["dali-cpu"] if dali else [])]
    questions += ["dali-gpu"] if machine.found.get("executor", "").startswith("DALI on GPU") else []
    questions += ["engines"] if dali and machine.found.get("visible") else []
    questions += ["cupy"] if any(name in packages for name in CUPY) else []
    runs = {}
    for done, question in enumerate(questions, 1):
        progress(done, len(questions) + 1)
        runs[question] = ask(question)
    return Facts(
        machine=machine,
        runs=runs,
        packages=packages,
        unmet=_unmet(packages),
        limits=find_limits(),
        card_on_bus=_card_on_bus(Path("/sys/bus/pci/devices")),
        system=f"{platform.system()} {platform.machine()}",
        variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
        pip=f"{shlex.quote(sys.executable)} -m pip",
    )


def _versions() -> dict[str, str]:
    found = {}
    for name in (*CORE, *DALI, *NVIMAGECODEC, *CUPY, DISTRIBUTION):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _unmet(packages: Mapping[str, str]) -> list[Unmet] | None:
    """Requirements of gpupipe, DALI, nvImageCodec and CuPy that are not met; None without `packaging`."""
    try:
        from packaging.requirements import Requirement
    except ImportError:
        return None
    found = []
    own = [extra for extra, marks in MARKS.items() if any(name in packages for name in marks)]
    for owner in [name for name in (DISTRIBUTION, *DALI, *NVIMAGECODEC, *CUPY) if name in packages]:
        for text in importlib.metadata.requires(owner) or ():
            needed = Requirement(text)
            optional = needed.marker is not None and not needed.marker.evaluate({"extra": ""})
            extras = own if owner == DISTRIBUTION else ["all"]
            if optional and needed.marker is not None and not any(needed.marker.evaluate({"extra": e}) for e in extras):
                continue
            got = _version(needed.name)
            if got is None and optional and owner == DISTRIBUTION:
                continue
            if got is None or not needed.specifier.contains(got, prereleases=True):
                found.append(Unmet(f"{owner} {packages[owner]}", f"{needed.name}{needed.specifier}", got or ""))
    return list(dict.fromkeys(found))


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _card_on_bus(devices: Path) -> bool:
    """Whether a display controller (class 03) of NVIDIA (vendor 10de) is on the PCI bus."""
    return any(
        vendor == "0x10de" and kind.startswith("0x03")
        for vendor, kind in (
            (_line(device / "vendor"), _line(device / "class")) for device in _listed(devices)
        )
    )  # fmt: skip


def _listed(folder: Path) -> Iterator[Path]:
    return folder.iterdir() if folder.is_dir() else iter(())


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
