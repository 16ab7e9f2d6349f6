"""What a GPU cannot do faster: the least time that a call's memory traffic and arithmetic take.

Pure. Deliberately generous: a floor is there to show times that cannot be, not to say how good a kernel is.
"""

from __future__ import annotations

from dataclasses import dataclass

MEMORY_SLACK = 0.8
"""Share of the least memory time that a measured time may fall to: clocks and counters are not exact."""
ARITHMETIC_SLACK = 0.25
"""The same for arithmetic. Fast convolutions need less than half of the operations that are counted."""
FLOPS_PER_CYCLE = {16: 4096, 32: 2048}
"""Of one multiprocessor's tensor cores, dense: 16-bit factors, and TF32. No GPU up to Hopper has more."""


@dataclass(frozen=True)
class Limits:
    """Of one GPU; None where its driver does not say."""

    bytes_per_s: float | None = None
    l2_bytes: int = 0
    multiprocessors: int = 0
    clock_hz: float = 0.0

    def memory_floor_ms(self, input_bytes: int, output_bytes: int) -> float:
        """Inputs are read from memory, the L2 cache being flushed before; of the outputs, what L2 cannot hold is
        written. 0 where nothing is known."""
        if not self.bytes_per_s:
            return 0.0
        traffic = input_bytes + max(0, output_bytes - self.l2_bytes)
        return MEMORY_SLACK * traffic / self.bytes_per_s * 1e3

    def arithmetic_floor_ms(self, flops: int, bits: int) -> float:
        """Of `flops` operations on factors of so many bits, on tensor cores. 0 where nothing is known."""
        per_s = self.multiprocessors * self.clock_hz * FLOPS_PER_CYCLE[16 if bits <= 16 else 32]
        return ARITHMETIC_SLACK * flops / per_s * 1e3 if per_s else 0.0
