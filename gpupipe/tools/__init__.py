"""tools: what the `gpupipe` command does with data, as functions that notebooks can call."""
