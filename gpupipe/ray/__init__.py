"""ray: datasets of gpupipe as those of Ray Data, and the other way round. `Dataset.on_ray` needs neither."""

from .from_dataset import from_dataset
from .to_dataset import to_dataset

__all__ = ["from_dataset", "to_dataset"]
