"""graph: a user's function as data: ops, the values they are applied to, and tracing."""
