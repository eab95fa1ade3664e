"""What `on_ray` gives while its workers die; run as a program, it says as JSON what it gives while a node dies."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpupipe as gp
from tests.on_ray.chains import Noted, digest, digests, numbers

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
RAY = os.environ.get("RAY_TEST_FOLDER")


def noted(name: str, seconds: float = 0.0, size: int = 2) -> Noted:
    """A function that leaves notes in a folder of its own."""
    (FOLDER / name).mkdir()
    return Noted(FOLDER / name, seconds, size)


def kill_one(fn: Noted, killed: list[int]) -> None:
    """End a process that makes elements, by its number."""
    for pid in fn.pids() - set(killed):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
            return


def six_kills() -> Any:
    """Two workers die six times in 48 batches, also after restarts."""
    fn, killed = noted("six", 0.002), list[int]()
    wanted = digests(numbers(384, fn=Noted(FOLDER)).iterator(epoch=3))

    def kill(count: int) -> None:
        if count % 7 == 3 and len(killed) < 6:
            kill_one(fn, killed)

    found, longest = taken(numbers(384, fn=fn).on_ray(2).iterator(epoch=3), kill)
    return {"equal": found == wanted, "count": len(found), "killed": len(killed), "longest": longest}


def taken(items: Any, then: Callable[[int], None]) -> tuple[list[str], float]:
    """The digests of all batches, and the longest wait for one; `then` is called with their number so far."""
    found, longest = list[str](), 0.0
    while True:
        start = time.monotonic()
        batch = next(items, None)
        longest = max(longest, time.monotonic() - start)
        if batch is None:
            return found, longest
        found.append(digest(batch))
        then(len(found))


def endless_kills() -> Any:
    """A worker that dies as soon as it makes an element, also after its restart."""
    fn = noted("endless", 0.5)
    over, killed = threading.Event(), list[int]()

    def kill() -> None:
        while not over.wait(0.05):
            kill_one(fn, killed)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    start = time.monotonic()
    try:
        list(numbers(384, fn=fn).on_ray(1, max_restarts=1).iterator(epoch=0))
        said = "none"
    except gp.WorkersLostError as error:
        said = str(error)
    finally:
        over.set()
        thread.join(10)
    return {"said": said, "seconds": time.monotonic() - start, "killed": len(killed)}


def a_node() -> Any:
    """A node is removed, with its worker and what that made; another one has room."""
    import ray
    from ray.cluster_utils import Cluster

    size = 160 << 20
    soon = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
    head: dict[str, Any] = {"num_cpus": 0, "object_store_memory": size, "include_dashboard": False, "temp_dir": RAY}
    head["_system_config"] = soon  # after which Ray takes a node for lost; else 15 s
    Path("/tmp/ray").mkdir(exist_ok=True)  # where a Cluster notes its address, whatever its own folder is
    cluster = Cluster(initialize_head=True, head_node_args=head)
    first = cluster.add_node(num_cpus=1, object_store_memory=size)
    ray.init(address=cluster.address, log_to_driver=False)
    wanted = digests(numbers(240, fn=Noted(FOLDER, size=16384)).iterator(epoch=3))
    items = numbers(240, fn=noted("node", 0.002, 16384)).on_ray(1).iterator(epoch=3)

    def lose_a_node(count: int) -> None:
        if count == 9:
            cluster.add_node(num_cpus=1, object_store_memory=size)
            cluster.remove_node(first, allow_graceful=False)

    found, longest = taken(items, lose_a_node)
    items.close()
    ray.shutdown()
    cluster.shutdown()
    return {"equal": found == wanted, "count": len(found), "longest": longest}


if __name__ == "__main__":
    print(json.dumps(a_node()), flush=True)
