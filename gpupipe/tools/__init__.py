"""tools: what the subcommands of `gpupipe` do, as functions that notebooks can call."""
