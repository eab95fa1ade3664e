"""pack: images of a folder, of tar archives or of Parquet files as shuffled TFRecord shards."""

from gpupipe.tools.pack.run import Packed, Skipped, pack

__all__ = ["Packed", "Skipped", "pack"]
