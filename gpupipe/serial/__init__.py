"""serial: elements, their types and errors as bytes and JSON, for files, states and worker processes.

Nothing is pickled. What is read from a file is bounded before it is used, and imports nothing.
"""
