"""doctor: what this machine can run, and what mends the rest."""
