"""remote_epoch: one epoch, by the gpupipe of a checkout, over the files of a server; prints what it took as JSON.

`remote` runs it with the URL of the server and the folder of the checkout.
"""

from __future__ import annotations

import hashlib
import json
import sys
import urllib.request
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

FILES = 16


def main(url: str) -> None:
    """Ask for the files and for a state of them, then read all records, 8 files at a time."""
    paths = [f"{url}/{file:02d}" for file in range(FILES)]
    asked = questions(paths)
    next(iter(chain(paths[:1])))  # imports what it needs, and opens a connection
    requests(url)
    digest, first, count = hashlib.blake2b(digest_size=8), 0.0, 0
    started, cpu = perf_counter(), process_time()
    for record in chain(paths).iterator(epoch=0):
        first = first or perf_counter() - started
        digest.update(record[:64])
        count += 1
    took = perf_counter() - started
    print(
        json.dumps(
            {
                "records_per_s": count / took,
                "first_s": first,
                "cpu_ms": (process_time() - cpu) * 1e3 / count,
                "requests": requests(url),
                "digest": f"{count} {digest.hexdigest()}",
                **asked,
            }
        )
    )


def questions(paths: list[str]) -> dict[str, float]:
    """Seconds of `list_files`, first in a process that has not imported the client of the storage, and of states."""
    import gpupipe as gp

    next(iter(gp.Dataset.range(1)))  # imports what every chain needs
    took: dict[str, float] = {}

    def timed(name: str, ask: Callable[[], Any]) -> Any:
        started, cpu = perf_counter(), process_time()
        made = ask()
        took[f"{name}_s"], took[f"{name}_cpu_s"] = perf_counter() - started, process_time() - cpu
        return made

    timed("list_cold", lambda: gp.Dataset.list_files(paths, shuffle=False))
    files = timed("list", lambda: gp.Dataset.list_files(paths, shuffle=False))
    ds = files.interleave(gp.TFRecordDataset, cycle_length=8)
    state = timed("state", ds.iterator(epoch=0).state_dict)
    timed("load", lambda: ds.iterator(epoch=0).load_state_dict(state))
    return took


def chain(paths: list[str]) -> Any:
    """The records of some files."""
    import gpupipe as gp

    files = gp.Dataset.from_tensor_slices(paths)
    return files.interleave(gp.TFRecordDataset, cycle_length=8, num_parallel_calls=gp.AUTOTUNE)


def requests(url: str) -> int:
    """The number of requests since the last call."""
    with urllib.request.urlopen(f"{url}/requests", timeout=10) as answer:
        return int(answer.read())


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[2])
    main(sys.argv[1])
