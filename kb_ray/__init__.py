"""kb_ray: verified, timed Triton kernels from language models, on Ray. Imports nothing."""

__version__ = "0.1.0"
