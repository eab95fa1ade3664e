"""combine: steps with several inputs, or with a dataset for each element."""
