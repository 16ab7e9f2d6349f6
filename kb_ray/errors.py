"""Who failed: one class per party, so that blame is decided once, where the failure is seen.

A bad kernel is not an exception at all: it is a Verdict. What is raised here never becomes a reward.
Only InfraError is retried. Knows nothing of how a failure is shown or logged.
"""


class KbRayError(Exception):
    """Base of everything kb_ray raises on purpose. `str(error)` is one line: what, where, what to do."""


class ConfigError(KbRayError):
    """The user's input cannot be used: a flag, a file, a URL, a credential. Exit code 2, nothing written."""


class TaskError(KbRayError):
    """One task cannot be used (malformed row, no entry point). Reported and skipped; the rest run."""


class ModelError(KbRayError):
    """The model server did not give an answer, after its own retries. Ends an episode as `model_error`."""


class ContextError(ModelError):
    """The server refused the prompt as longer than its window. Ends an episode as `context_exhausted`."""


class InfraError(KbRayError):
    """Our side failed: an actor, a judge, a node. Retried elsewhere; never the model's failure."""


class ReferenceFault(InfraError):
    """Nobody's failure but the task's: wherever it was tried, its reference could not be run, or asked for a GPU."""


class StoreError(KbRayError):
    """Traces could not be read or written after retries. The run stops cleanly; nothing is lost on resume."""
