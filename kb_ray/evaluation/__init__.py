"""Around the metrics of `python -m kb_ray.evaluate`: settings, sources of answers, tables, files, TensorBoard."""
