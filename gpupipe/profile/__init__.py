"""profile: where the time of a chain goes, what limits its rate, and what a change would give."""
