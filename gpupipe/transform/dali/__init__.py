"""dali: the executor that runs a program as a DALI graph."""
