"""tools: looking into data files and checking them, for the `gpupipe` command."""
