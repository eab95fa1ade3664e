"""compare: the same chain on every executor.

In go data, or nothing: then photographs are drawn. Out come what each executor costs, measured in a process of its own,
how far its pixels are from the reference, and a picture of the images.
"""
