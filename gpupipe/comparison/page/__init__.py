"""page: the HTML page of a comparison, one file that needs no network."""
