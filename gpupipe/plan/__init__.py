"""plan: a chain as data.

Every method of `Dataset` makes one frozen node; nothing runs, nothing is read. A node knows its element's structure
and specs, its cardinality and its fingerprint, each computed once from those of its inputs.
"""
