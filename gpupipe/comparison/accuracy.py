"""accuracy: whether a model answers differently to the images of another executor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..brief import brief
from ..errors import PlanError
from .result import Accuracy
from .rounds import Runner

__all__ = ["accuracies"]


def accuracies(model: Callable[[Any], Any], runners: Mapping[str, Runner]) -> dict[str, Accuracy]:
    """Show a model one pass of each executor; the last one is the reference.

    Args:
        model: from a batch of images, as delivered but on the host, to scores [B,classes] or to classes [B].
        runners: the executors, by key.

    Raises:
        PlanError: the model's answers are neither, or the chain delivers no images, or ragged ones.
    """
    answers = {key: _answers(model, runner) for key, runner in runners.items()}
    reference, _ = list(answers.values())[-1]
    found = {}
    for key, (classes, labels) in answers.items():
        same = len(classes) == len(reference)
        found[key] = Accuracy(
            images=len(classes),
            top1=float((classes == labels).mean()) if len(labels) == len(classes) else None,
            agreement=float((classes == reference).mean()) if same else 0.0,
        )
    return found


def _answers(model: Callable[[Any], Any], runner: Runner) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    classes, labels = [], []
    for batch in runner.batches():
        if not batch.images:
            raise PlanError("compare needs a chain that delivers images for model=, got elements without any")
        if len({image.shape for image in batch.images}) > 1:
            raise PlanError("compare needs batches of images of one size for model=, got ragged ones")
        classes.append(_classes(model(np.stack(batch.images)), len(batch.images)))
        labels.append(batch.labels)
    return np.concatenate(classes), np.concatenate(labels)


def _classes(answer: Any, images: int) -> npt.NDArray[Any]:
    """The classes in a model's answer, which may be an array of another library."""
    answer = answer.detach().cpu().numpy() if hasattr(answer, "detach") else answer
    try:
        scores = np.asarray(answer.get() if hasattr(answer, "get") else answer)
    except (TypeError, ValueError):  # a dict of scores, lists of unequal length
        scores = np.asarray(None)
    if scores.ndim == 2 and len(scores) == images and scores.shape[1] > 1 and scores.dtype.kind in "biuf":
        if np.isnan(scores).any():
            raise PlanError("compare needs a model that gives numbers for scores, got NaN")
        return np.asarray(scores.argmax(axis=1))
    if scores.shape != (images,) or scores.dtype.kind not in "biu":
        got = f"{scores.dtype}{list(scores.shape)}" if scores.dtype.kind != "O" else brief(answer)
        raise PlanError(
            f"compare needs a model that gives scores [{images},classes], of two classes or more, or integer classes "
            f"[{images}] for a batch of {images} images, got {got}"
        )
    return scores
