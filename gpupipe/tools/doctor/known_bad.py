"""known_bad: versions and cards that are known to go wrong together, each with its public source."""

from __future__ import annotations

from collections.abc import Callable

from gpupipe.tools.doctor.facts import NVIMAGECODEC, Facts

from ...classes import dataclass

__all__ = ["KNOWN_BAD", "KnownBad"]


@dataclass(frozen=True, slots=True)
class KnownBad:
    """A combination that is known to go wrong.

    Attributes:
        name: of the combination.
        found: whether a machine has it.
        harms: whether it harms what gpupipe itself does; else only what a user's own code may do.
        text: what goes wrong, and what to do.
        source: the public report of it.
    """

    name: str
    found: Callable[[Facts], bool]
    harms: bool
    text: str
    source: str


def _capabilities(facts: Facts) -> list[tuple[int, int]]:
    return [(c["capability"][0], c["capability"][1]) for c in facts.machine.found.get("cards", ()) if "capability" in c]


def _nvimagecodec_0_9(facts: Facts) -> bool:
    versions = [facts.packages[name] for name in facts.installed(NVIMAGECODEC)]
    return bool(facts.machine.found.get("visible")) and any(version.startswith("0.9.0") for version in versions)


def _engines_of_rtx_50(facts: Facts) -> bool:
    return any(major == 12 for major, _ in _capabilities(facts)) and bool(facts.installed(NVIMAGECODEC))


def _cuda_13_on_an_old_card(facts: Facts) -> bool:
    # CUDA 13 starts at Turing, compute capability 7.5; the wheel of DALI 2.4 for it has code for 7.5 to 12.0.
    old = any(capability < (7, 5) for capability in _capabilities(facts))
    return old and "nvidia-dali-cuda130" in facts.packages and "nvidia-dali-cuda120" not in facts.packages


KNOWN_BAD: tuple[KnownBad, ...] = (
    KnownBad(
        "DALI for CUDA 13 on a card older than Turing",
        _cuda_13_on_an_old_card,
        True,
        "CUDA 13 does not support cards below compute capability 7.5 (Maxwell, Pascal, Volta)",
        "https://docs.nvidia.com/cuda/archive/13.0.0/cuda-toolkit-release-notes/index.html",
    ),
    KnownBad(
        "JPEG engines of RTX 50xx cards",
        _engines_of_rtx_50,
        True,
        "nvJPEG's engines on cards of this generation have left images black and reported them as decoded; gpupipe "
        "compares each image with what its file says, and Options(verify=1000) compares more",
        "https://github.com/MrNeRF/LichtFeld-Studio/pull/1924",
    ),
    KnownBad(
        "regions of JPEGs with nvImageCodec 0.9.0",
        _nvimagecodec_0_9,
        False,  # gpupipe decodes whole images on a GPU: transform/dali/executor.py
        "decoding a region of a JPEG on a GPU fails or crashes; gpupipe decodes whole images there, and an "
        "ops.dali_function of your own should, too",
        "https://github.com/NVIDIA/nvImageCodec/issues/55",
    ),
)
"""To add one: a public source, and a test of `found` in tests/tools/test_doctor.py."""
