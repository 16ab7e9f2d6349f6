"""Evaluation: candidates to verdicts, from the driver's pool down to the sandboxed process."""
