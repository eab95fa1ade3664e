"""peers: the chain in libraries other than DALI, TensorFlow and torch's own DataLoader, one file each."""
