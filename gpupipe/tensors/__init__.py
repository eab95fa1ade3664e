"""tensors: batches as tensors of PyTorch, JAX, CuPy, Keras and TensorFlow, in objects that training loops take."""
