"""What may break does, at drawn moments, in real runs; afterwards every episode is there once."""
