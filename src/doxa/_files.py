"""Files that are either wholly there or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_atomic(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write a file so that a kill or a power cut at any moment leaves the old content or the new, never a mixture.

    A temporary file in the same folder is written, synced to the disk and renamed over the target, and the folder is
    synced. Several processes may write the same file at once: one of them wins.

    Args:
        path: the file; its folder exists.
        data: the whole content.
        private: only the owner may read it; by default whoever the umask lets.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomic(Path(folder) / "greeting", b"hello")
    ...     [file.name for file in Path(folder).iterdir()], (Path(folder) / "greeting").read_bytes()
    (['greeting'], b'hello')
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    mode = 0o600 if private else 0o666
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames within a folder durable, where the system lets folders be opened."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
