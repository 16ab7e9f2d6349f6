"""Where tasks come from: built-in, a folder, a file, KernelBench, KernelBook.

`plan` turns what was asked for into (task, sample index) pairs. Programs are read, never imported or run;
whether a reference works is found out by the verifier.
"""

from __future__ import annotations

from kb_ray.tasks.sources import Sources, entries, plan

__all__ = ["Sources", "entries", "plan"]
