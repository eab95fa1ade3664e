"""extract: bytes to records.

In come names of files; out go records, features of `tf.train.Example`, and what image headers say. Everything here runs
on the host, trusts no byte it has not checked, and knows no plan.
"""
