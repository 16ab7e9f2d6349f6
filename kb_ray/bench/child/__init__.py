"""What runs in the judge, the zygotes and the sandboxed processes: the only importers of torch and triton."""
