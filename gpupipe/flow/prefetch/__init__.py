"""prefetch: elements made ahead by a thread, and the bounded queue between two threads."""
