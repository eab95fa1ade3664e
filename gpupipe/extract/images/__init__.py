"""images: encoded images on the host: headers, structure, pixels."""
