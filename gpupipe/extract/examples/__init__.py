"""examples: read and write tf.train.Example without protobuf."""
