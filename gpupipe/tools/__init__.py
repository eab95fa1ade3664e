"""tools: what the subcommands of `gpupipe` do, apart from comparing executors."""
