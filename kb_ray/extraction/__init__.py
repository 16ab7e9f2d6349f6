"""The steps behind `kb_ray.extract`: reasoning, blocks, syntax, joining. All pure, all on text."""
