"""What differs between operating systems: how data reaches the platter, and how space is set aside. Nowhere else asks which system it is.

On Linux `fdatasync` reaches the device and `posix_fallocate` reserves blocks that read as zeros. On macOS `fsync` stops at the drive's
own cache, only F_FULLFSYNC goes further; and space is set aside with F_PREALLOCATE, after which the file is grown by `ftruncate`.
"""

from __future__ import annotations

import errno
import os
import struct
import sys

if sys.platform == "darwin":
    import fcntl

    _F_FULLFSYNC = 51
    _F_PREALLOCATE = 42
    _F_ALLOCATECONTIG = 2
    _F_ALLOCATEALL = 4
    _F_PEOFPOSMODE = 3

    def sync_data(fd: int) -> None:
        """Everything written to the file is on the device when this returns."""
        try:
            fcntl.fcntl(fd, _F_FULLFSYNC)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL):
                raise
            os.fsync(fd)  # A file system without F_FULLFSYNC (a network share) has nothing stronger than this.

    def allocate(fd: int, size_bytes: int) -> None:
        """The file has this size and its blocks are set aside; OSError(ENOSPC) where they cannot be."""
        missing = size_bytes - os.fstat(fd).st_size
        if missing <= 0:
            return
        request = struct.pack("IiqqQ", _F_ALLOCATEALL, _F_PEOFPOSMODE, 0, missing, 0)
        try:
            fcntl.fcntl(fd, _F_PREALLOCATE, request)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL):
                raise
        os.ftruncate(fd, size_bytes)

else:

    def sync_data(fd: int) -> None:
        """Everything written to the file is on the device when this returns."""
        os.fdatasync(fd)

    def allocate(fd: int, size_bytes: int) -> None:
        """The file has this size and its blocks are set aside; OSError(ENOSPC) where they cannot be."""
        os.posix_fallocate(fd, 0, size_bytes)


def sync_all(fd: int) -> None:
    """Like `sync_data`, with the file's size and allocation: for files just made, grown or cut, and for folders."""
    if sys.platform == "darwin":
        sync_data(fd)
    else:
        os.fsync(fd)
