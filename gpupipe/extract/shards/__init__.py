"""shards: tar archives and LMDB databases cut into samples."""
