"""How much one thread of a linear kernel may hold, given the registers of the architecture."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thread:
    """The limits of a thread. They decide how many linear stages one pass takes, and how many elements of a block a thread handles.

    - `most_live`: values that a pass holds at once
    - `most_work`: reads, additions and writes of one part of a pass
    - `bytes_read_ahead`: bytes that are read before they are needed
    - `most_bytes`: bytes of live values; with more, a thread handles fewer elements of each block
    - `bytes_of_a_block`: bytes of each block that a thread handles. With at most `few_live` live values it handles twice as many, because
      few blocks need longer accesses to keep memory busy
    """

    most_live: int
    most_work: int
    bytes_read_ahead: int
    most_bytes: int
    bytes_of_a_block: int
    few_live: int


NO_ROOM = Thread(most_live=0, most_work=0, bytes_read_ahead=0, most_bytes=0, bytes_of_a_block=0, few_live=0)
"""A thread with no room: with it every linear stage remains a pass of its own."""
CUDA_THREAD = Thread(most_live=96, most_work=3_000, bytes_read_ahead=448, most_bytes=768, bytes_of_a_block=8, few_live=8)
"""A thread of every target that `CudaTarget` names has 255 registers of 4 bytes, and addresses take many of them.

96 live doubles (768 bytes) take 192 registers; 448 bytes that are read early take 112. A part of 3,000 operations still fits the
instruction cache, and is ordered and compiled in seconds. 8 bytes of a block are one double: 32 neighbouring threads read two lines of 128
bytes.
"""
