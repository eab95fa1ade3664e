"""storage: names to files, files and URLs to ranges of bytes."""
