"""flow: elements on host threads.

A flow is opened in a `Context` and gives an iterator of elements `(value, stream, position)`, where `value` is a
tuple of columns or a `Hole`. Flows hold no running state, iterators do.
"""
