"""missing: hints for names that a public module does not have, and for libraries that are not installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

__all__ = ["DISTRIBUTION", "LIBRARIES", "names_missing"]

DISTRIBUTION = "gpupipe-dali"
"""The name that pip knows gpupipe by. The `gpupipe` of package indexes is another project's."""

LIBRARIES = {
    "cuda12": "nvidia-dali-cuda120 cupy-cuda12x 'cuda-toolkit[cudart,nvrtc]==12.*'",
    "cuda13": "nvidia-dali-cuda130 cupy-cuda13x 'cuda-toolkit[cudart,nvrtc]==13.*'",
    "cpu": "nvidia-dali-cuda130",
    "fast": "opencv-python-headless cykooz-resizer",
    "remote": "fsspec",
    "parquet": "pyarrow",
    "hdf5": "h5py",
    "lmdb": "lmdb",
    "ray": "ray",
    "tiff": "tifffile",
    "plot": "matplotlib",
    "page": "jinja2",
}
"""What each extra of pyproject.toml stands for, without the extras that it includes: what follows `pip install`."""


def names_missing(
    module: str, names: Sequence[str], instead: Mapping[str, str], elsewhere: Callable[[str], str] = lambda name: ""
) -> Callable[[str], object]:
    """Make the `__getattr__` of a module, which raises an AttributeError that says what to write instead.

    Args:
        module: its name.
        names: its public names.
        instead: hints for names that other libraries have.
        elsewhere: returns a hint where another module has the name, else "".
    """
    alike = {_bare(name): name for name in names}
    nothing = ModuleType(module)  # Python itself would suggest another name, from what the module has

    def __getattr__(name: str) -> object:
        way = ""
        if not name.startswith("_"):
            import difflib  # for mistakes alone

            longer = [one for one in names if set(name.split("_")) <= set(one.split("_"))]
            close = [min(longer, key=len)] if longer else difflib.get_close_matches(name, names, 1)
            own = alike.get(_bare(name)) or next(iter(close), None)
            way = instead.get(name) or elsewhere(name) or ("" if own is None else f"did you mean {own}?")
        text = f"module {module!r} has no attribute {name!r}" + (way and f"; {way}")
        raise AttributeError(text, name=name, obj=nothing)

    return __getattr__


def _bare(name: str) -> str:
    return name.replace("_", "").lower()
