"""extract: file names in; records, features of `tf.train.Example`, image headers and decoded images out."""
