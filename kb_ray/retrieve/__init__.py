"""Examples for prompts: pairs of a PyTorch program and its kernel, indexed once and looked up for each task."""
