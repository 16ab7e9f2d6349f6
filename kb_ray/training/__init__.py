"""Runs of training: settings, data, checkpoints and what is written down; what is learned is in `learn`."""
