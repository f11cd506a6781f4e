"""A disk whose power can be cut: a file system in a file of ours (ext4 on a loop device, which root can mount).

Cutting it is the kernel's own way to test file systems (EXT4_IOC_SHUTDOWN without flushing its log, what xfstests call `godown`): from that
moment nothing is written any more, neither data that nobody synced nor the journal's own. Mounted again, the file system recovers by its
journal and has what was synced, and of the rest what had happened to be written. What it does not play: a disk that lies about its syncs,
and sectors torn in two (lab/simdisk.py and tests/crash do those, for the log of `local`).
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import time
from pathlib import Path

from ..driver import PeerMissing

DISK_MB = 1024
"""Of a file with holes: it takes what is written."""
_SHUTDOWN = 0x8004587D
_WITHOUT_LOG = 2
_BUSY_S = 30.0


class PoweredDisk:
    def __init__(self, folder: Path) -> None:
        """Mounted at `path`."""
        self._image = folder / "disk.ext4"
        self.path = folder / "disk"
        self.path.mkdir()
        with open(self._image, "wb") as file:
            file.truncate(DISK_MB << 20)
        self._run("mkfs.ext4", "-q", "-F", str(self._image))
        self.power_on()

    def power_on(self) -> None:
        self._run("mount", "-o", "loop", str(self._image), str(self.path))

    def cut(self) -> None:
        """Nothing is written from here on. Whoever uses it should be stopped first, and killed after."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG))
        finally:
            os.close(descriptor)

    def power_off(self) -> None:
        """After a cut, when nobody uses it any more: killed processes let go of their files a little later."""
        give_up = time.monotonic() + _BUSY_S
        while True:
            try:
                self._run("umount", str(self.path))
                return
            except PeerMissing:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.05)

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], capture_output=True, check=False)

    @staticmethod
    def _run(*command: str) -> None:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise PeerMissing(f"{command[0]}, which makes a disk whose power can be cut, is not installed") from None
        if done.returncode:
            raise PeerMissing(f"a disk whose power can be cut: {' '.join(command[:2])}: {done.stderr.strip()}")
