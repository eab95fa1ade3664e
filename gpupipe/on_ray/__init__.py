"""on_ray: elements of a chain that workers on Ray make by their numbers. Ray is imported when they start."""
