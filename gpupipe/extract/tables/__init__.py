"""tables: rows of tabular files: Parquet and others, block by block and by index."""
