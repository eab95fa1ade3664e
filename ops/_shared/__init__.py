"""_shared: what several ops are made of: base classes, and ops that the optimizer makes of others."""
