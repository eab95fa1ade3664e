"""compare: `gpupipe.compare`, one chain on every executor of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arguments import integer
from ..brief import brief
from ..dataset import Dataset
from ..errors import PlanError, PlanTypeError

if TYPE_CHECKING:
    from .comparison import Comparison

__all__ = ["check_prices", "check_rate", "compare"]

PRICES = ("core_hour", "gpu_hour")


def compare(
    dataset: Dataset,
    executors: Sequence[str] | None = None,
    *,
    images: int = 400,
    compared: int = 64,
    steps: bool = True,
    rate: float | None = None,
    prices: Mapping[str, float] | None = None,
    model: Callable[[Any], Any] | None = None,
    out: str | os.PathLike[str] | None = None,
) -> Comparison:
    """Run a chain on every executor of this machine and compare cost and pixels.

    Print the result for a table and a verdict: CPU time, throughput and memory of each executor, how far the images are
    apart after each op, what limits the rate, how many cores a GPU saves. Executors take turns in this process; the
    command `gpupipe compare` gives each a process of its own, to which its memory and first batch belong alone. Passes
    draw what `first()` draws, and do not count as epochs.

    Args:
        dataset: the chain; what its options say of the device does not matter.
        executors: "dali-gpu", "dali-cpu", "fast" and "numpy", or some of them; by default all. The last one measured is
            the reference for pixels.
        images: a pass ends after so many; fewer if the data ends. More than a few batches make figures steadier.
        compared: images whose pixels are compared, at most `images`; all of their intermediate images are kept in
            memory.
        steps: whether to compare pixels step by step, too.
        rate: images/s of your training: then the share of the time that it would wait is measured.
        prices: "core_hour" and "gpu_hour" in one currency: then the verdict says from when on a GPU pays.
        model: from a batch of images (NumPy) to scores [B,classes] or integer classes [B]: then top-1 of each executor
            is measured, against the first leaf of integers.
        out: an HTML page to write.

    Raises:
        PlanError: an argument is wrong, or no executor can run the chain.
        MissingDependencyError: `out` is given and jinja2 is not installed; nothing has been measured.
        GpupipeError: no executor could be measured.
    """
    from ..progress import Progress
    from .contest import Request, contest
    from .page.write import check_page

    if not isinstance(dataset, Dataset):
        raise PlanTypeError(f"compare needs a Dataset, got {brief(dataset)}")
    if model is not None and not callable(model):
        raise PlanTypeError(f"compare needs a model that can be called, got {brief(model)}")
    if out is not None and not isinstance(out, str | os.PathLike):
        raise PlanTypeError(f"compare needs a path for out, got {brief(out)}")
    request = Request(
        dataset=dataset,
        data="dataset",
        images=integer("compare", "images", images, 2),
        compared=integer("compare", "compared", compared, 1),
        steps=bool(steps),
        rate=check_rate(rate),
        prices=check_prices({} if prices is None else prices),
        model=model,
    )
    keys = check_executors(executors)
    if out is not None:
        check_page()
    with Progress() as progress:
        result = contest(request, keys, lambda executor, runner: runner, progress)
    if out is not None:
        result.save(out)
    return result


def check_executors(keys: Sequence[str] | None) -> Sequence[str]:
    """Check the keys of executors.

    Raises:
        PlanError: there is no such executor.
        PlanTypeError: they are no texts.
    """
    from .contestants import EXECUTORS

    known = [executor.key for executor in EXECUTORS]
    if keys is not None and not isinstance(keys, str | Sequence | Set):
        raise PlanTypeError(f"compare needs executors out of {', '.join(known)}, got {brief(keys)}")
    given = [keys] if isinstance(keys, str) else list(keys or ())
    for key in given:
        if key not in known:
            raise PlanError(f"compare needs executors out of {', '.join(known)}, got {brief(key)}")
    return given


def check_rate(rate: float | None) -> float | None:
    """Check the images/s of a consumer.

    Raises:
        PlanError: it is no number from 0.1 to 1e9.
    """
    if rate is None:
        return None
    if not _is_number(rate) or not 0.1 <= rate <= 1e9:
        raise PlanError(f"compare needs a rate from 0.1 to 1e9 images/s, got {brief(rate)}")
    return float(rate)


def check_prices(prices: Mapping[str, float]) -> Mapping[str, float]:
    """Check prices.

    Raises:
        PlanError: a name is unknown, or a price is no number from 0 to 1e9.
        PlanTypeError: they are no mapping.
    """
    if not isinstance(prices, Mapping):
        raise PlanTypeError(f"compare needs prices by name, {' and '.join(PRICES)}, got {brief(prices)}")
    for name, price in prices.items():
        if name not in PRICES:
            raise PlanError(f"compare needs prices named {' and '.join(PRICES)}, got {brief(name)}")
        if not _is_number(price) or not 0 <= price <= 1e9:
            raise PlanError(f"compare needs a price from 0 to 1e9 for {name}, got {brief(price)}")
    return {name: float(price) for name, price in prices.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
