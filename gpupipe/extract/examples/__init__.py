"""examples: tf.train.Example, read and written."""
