"""A family of tasks with room to learn in, and splits of it that say what was learned."""
