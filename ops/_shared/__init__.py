"""_shared: base classes and helpers of ops, and the ops that the optimizer derives from others."""
