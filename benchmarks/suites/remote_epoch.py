"""remote_epoch: one epoch, by the gpupipe of a checkout, over the files of a server; prints what it took as JSON.

`remote` runs it with the URL of the server and the folder of the checkout.
"""

from __future__ import annotations

import hashlib
import json
import sys
import urllib.request
from time import perf_counter, process_time
from typing import Any

FILES = 16


def main(url: str) -> None:
    """Read all records, 8 files at a time."""
    paths = [f"{url}/{file:02d}" for file in range(FILES)]
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
            }
        )
    )


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
