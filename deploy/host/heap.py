"""The allocator of the C library in a process that must stay small beside a data plane."""

from __future__ import annotations

import ctypes

_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 1 << 17
"""glibc's initial value."""


def return_large_buffers() -> bool:
    """Have every freed buffer of more than 128 KiB returned to the system. By default glibc raises this size to that of
    the largest freed buffer, so that the buffers of one whole table leave holes of several megabytes in the heap.
    Returns False for a C library without this setting."""
    try:
        setting = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(setting(_M_MMAP_THRESHOLD, _LARGE_BYTES))
