"""Two folders change places in one step: whoever looks sees the one or the other, and never none or both. The one file here that asks which
system it runs on.

Python has no word for it. Linux has renameat2 with RENAME_EXCHANGE (ext4, XFS, Btrfs, tmpfs; not NFS), macOS renamex_np with RENAME_SWAP
(APFS).
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

from dovetail.errors import BadRequest

_HERE = -100
_EXCHANGE = 2
"""RENAME_EXCHANGE of Linux and RENAME_SWAP of macOS happen to be the same."""


def exchange(one: Path, other: Path) -> None:
    """Both must be there, on one file system."""
    library = ctypes.CDLL(None, use_errno=True)
    paths = os.fsencode(one), os.fsencode(other)
    try:
        if sys.platform == "darwin":
            failed = library.renamex_np(*paths, ctypes.c_uint(_EXCHANGE))
        else:
            failed = library.renameat2(_HERE, paths[0], _HERE, paths[1], ctypes.c_uint(_EXCHANGE))
    except AttributeError:
        failed = -1
        ctypes.set_errno(errno.ENOSYS)
    if failed:
        number = ctypes.get_errno()
        if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
            raise BadRequest(
                f"{other.parent}: this file system cannot exchange two folders in one step; a Delta archive needs no such thing"
            )
        raise OSError(number, os.strerror(number), str(other))
