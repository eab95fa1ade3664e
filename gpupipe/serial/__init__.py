"""serial: elements, their types and errors as bytes and JSON. Nothing is pickled."""
