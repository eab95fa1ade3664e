"""images: encoded images on the host: their headers, structure and pixels."""
