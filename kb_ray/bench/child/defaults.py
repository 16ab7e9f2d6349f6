"""What code may set for all of its process, and keeps to itself where several programs share one: PyTorch's default
dtype and default device.

Knows no program.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Defaults:
    """`device`: None where tensors are made on the CPU, as they are where nobody has said anything."""

    dtype: torch.dtype = torch.float32
    device: torch.device | None = None

    @classmethod
    def now(cls) -> Defaults:
        """Those in force."""
        device = torch.get_default_device()
        # A CPU that is set costs every later call a look at it.
        return cls(torch.get_default_dtype(), None if device.type == "cpu" else device)

    def apply(self) -> None:
        """From now on."""
        torch.set_default_dtype(self.dtype)
        if self.device != Defaults.now().device:
            torch.set_default_device(self.device)
