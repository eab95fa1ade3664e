"""ranks: which of several processes this one is, and whether all of them are about to do the same."""
