"""Exports: a trace store seen as training data. One module for each view; pure ones beside those that write."""
