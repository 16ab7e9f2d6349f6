"""What an error looks like where a device, or the host, has no memory left.

Imports none of the libraries that raise it.
"""

from __future__ import annotations

from collections.abc import Sequence

_BY_GPUS = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "dispatched on the CPU or the disk")
"""What torch and the driver say, cuBLAS, and transformers where a model in 8 bits is larger than all GPUs."""
_BY_HOSTS = ("can't allocate memory", "Cannot allocate memory")
"""What torch and the operating system say."""


def ran_out(error: BaseException) -> bool:
    """Whether an error says that a device, or the host, has no memory left."""
    # torch's own has a text of its own too; a name needs no import.
    return type(error).__name__ == "OutOfMemoryError" or host_ran_out(error) or _says(error, _BY_GPUS)


def host_ran_out(error: BaseException) -> bool:
    """Whether it is the host that has none."""
    return isinstance(error, MemoryError) or _says(error, _BY_HOSTS)


def _says(error: BaseException, words: Sequence[str]) -> bool:
    return any(one in str(error) for one in words)
