"""storage: bytes of files and URLs."""
