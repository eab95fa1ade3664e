"""board: where ranks leave short texts for one another: the key-value store of torch.distributed or of JAX.

A store does not wait: a rank that looks at one batch more than the others does not disturb the collective operations of
their training. The text is data, never pickled.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol

from .find import jax_distributed, torch_distributed

__all__ = ["Board", "board"]

PREFIX = "gpupipe/by_rank/"
"""Of all keys."""


class Board(Protocol):
    """Texts under keys, which all ranks see.

    Attributes:
        name: of the engine.
        rank: of this process.
        world: number of processes.
        identity: an object that is another one after the engine was initialised again.
    """

    name: str
    rank: int
    world: int
    identity: Any

    def put(self, key: str, text: str) -> None:
        """Leave a text under a key, which is used once."""
        ...

    def get(self, key: str) -> str | None:
        """The text under a key; None if there is none yet."""
        ...


def board() -> Board | None:
    """The board of the engine that this process has initialised; None if there is none, or its version hides it.

    A worker of a DataLoader has none: a fork shares the connection of its parent, and must not write to it.
    """
    data = sys.modules.get("torch.utils.data")
    if data is not None and data.get_worker_info() is not None:
        return None
    torch = torch_distributed()
    if torch is not None:
        default = getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_get_default_store", None)
        return None if default is None else _OfTorch(torch, default())
    jax = jax_distributed()
    if jax is not None:
        state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
        client = getattr(state, "client", None)
        return _OfJax(jax, client) if hasattr(client, "key_value_try_get") else None
    return None


class _OfTorch:
    """The store through which torch's process group was formed."""

    name = "torch.distributed"

    def __init__(self, distributed: Any, store: Any) -> None:
        self.rank, self.world = distributed.get_rank(), distributed.get_world_size()
        self.identity = self._store = store

    def put(self, key: str, text: str) -> None:
        self._store.set(PREFIX + key, text)

    def get(self, key: str) -> str | None:
        if not self._store.check([PREFIX + key]):
            return None
        text: str = self._store.get(PREFIX + key).decode()
        return text


class _OfJax:
    """The key-value service of jax.distributed."""

    name = "jax.distributed"

    def __init__(self, jax: Any, client: Any) -> None:
        self.rank, self.world = jax.process_index(), jax.process_count()
        self.identity = self._client = client

    def put(self, key: str, text: str) -> None:
        self._client.key_value_set(PREFIX + key, text)

    def get(self, key: str) -> str | None:
        try:
            text: str = self._client.key_value_try_get(PREFIX + key)
        except Exception as error:  # JAX has no class of its own for it
            if "NOT_FOUND" in str(error):
                return None
            raise
        return text
