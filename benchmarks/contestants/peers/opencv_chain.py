"""opencv_chain: the chain as a loop over OpenCV calls in a pool of threads, which release the interpreter's lock.

OpenCV's `resize` has no antialiased bilinear filter. INTER_AREA, which its documentation recommends for shrinking, is
a box filter: it averages over half as many pixels, which is less work and leaves more of fine stripes than the triangle
of the other contestants. So the contestant is marked in the table: `Contestant.apart`.
"""

from __future__ import annotations

import importlib
import random
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.contestants.peers.source import Places, normalised
from benchmarks.contestants.torch_chain import window
from benchmarks.job import SIZE, Job

__all__ = ["batches"]

AHEAD = 2
"""Batches that are being made while one is taken."""


def batches(job: Job) -> Iterator[tuple[Any, Any]]:
    """Yield one pass of (images, labels) as NumPy arrays, made by `job.threads` threads."""
    cv2: Any = importlib.import_module("cv2")
    cv2.setNumThreads(1)  # the pool has as many threads as it may; OpenCV's own would compete with them
    random.seed(job.seed)
    places = Places(job)
    order = places.shuffled(job.seed)
    how = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION

    def finish(i: int, out: Any) -> int:
        encoded, label = places[i]
        image = cv2.imdecode(np.frombuffer(encoded, np.uint8), how)
        x, y, w, h = window(*image.shape[:2])
        shrinks = w >= SIZE and h >= SIZE
        image = cv2.resize(
            image[y : y + h, x : x + w], (SIZE, SIZE), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
        )
        if random.random() < 0.5:
            image = cv2.flip(image, 1)
        normalised(image, out)
        return label

    waiting: deque[tuple[Any, list[Future[int]]]] = deque()
    with ThreadPoolExecutor(job.threads) as pool:
        for start in range(0, len(order) - job.batch + 1, job.batch):
            images = np.empty((job.batch, SIZE, SIZE, 3), np.float32)
            rows = zip(order[start : start + job.batch], images, strict=True)
            waiting.append((images, [pool.submit(finish, i, out) for i, out in rows]))
            if len(waiting) > AHEAD:
                yield _complete(*waiting.popleft())
        while waiting:
            yield _complete(*waiting.popleft())


def _complete(images: Any, labels: list[Future[int]]) -> tuple[Any, Any]:
    return images, np.array([label.result() for label in labels])
