"""The folder of the image store. Its functions block; callers run them through `Offload`.

    sha256/<digest>       the content of an image, never changed once it has this name
    objects/<name>.json   which content an object has, and what is known of it
    partial/<name>        a download in progress, and <name>.json with the validators to resume it

A file gets its final name by a rename, after its content was verified and synced. Several replicas may share the folder
over a network: a download holds a lock on its partial file, and content has the same name everywhere.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import msgspec

KEY_BYTES = 32
"""Size of the key that signs download tokens."""

_MARGIN_BYTES = 256 << 20
"""Disk space that downloads leave free for the log and for saved state, which may be on the same disk."""
_READ_BYTES = 1 << 20


class Kept(msgspec.Struct, frozen=True):
    """The content that the store has for an object, and the URL that it came from."""

    key: str
    url: str
    sha256: str
    size: int
    versions: dict[str, str] = {}


class Validators(msgspec.Struct, frozen=True):
    """The validators that a server sent with a file, by which a download of the same file is resumed. `size` is -1 if
    unknown."""

    url: str
    etag: str = ""
    last_modified: str = ""
    size: int = -1


class Collected(NamedTuple):
    """The result of a collection of unreferenced content."""

    files: int
    bytes: int


class ContentStore:
    """The files of the image store in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._content, self._objects, self._partial = (folder / name for name in ("sha256", "objects", "partial"))

    def open(self) -> list[Kept]:
        """Create the folder if it does not exist. Returns what it has for objects."""
        for each in (self._content, self._objects, self._partial):
            each.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = map(self._read, sorted(self._objects.glob("*.json")))
        return [kept for kept in found if kept is not None]

    def kept(self, key: str) -> Kept | None:
        """The content in the folder for an object: another replica may have downloaded it."""
        return self._read(self._object_path(key))

    def _read(self, path: Path) -> Kept | None:
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Kept)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None  # a damaged record: its image is downloaded again
        return found if self.path(found.sha256).is_file() else None

    def signing_key(self, random_bytes: bytes) -> bytes:
        """The key that signs download tokens; these bytes if the folder has none yet. Replicas with the same folder
        accept each other's tokens."""
        path = self.folder / "token.key"
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return path.read_bytes()
        with os.fdopen(handle, "wb") as stream:
            stream.write(random_bytes)
            stream.flush()
            os.fsync(stream.fileno())
        return random_bytes

    def path(self, sha256: str) -> Path:
        """The file with this content."""
        return self._content / sha256

    def keep(self, kept: Kept) -> None:
        """Record what an object has."""
        _write(self._object_path(kept.key), msgspec.json.encode(kept))

    def forget(self, key: str) -> None:
        """Remove the record of an object. Its content stays until it is collected."""
        self._object_path(key).unlink(missing_ok=True)

    def partial(self, key: str, url: str) -> PartialFile | None:
        """The download of a URL for an object, locked; None while another process has it."""
        return PartialFile.locked(self._partial / _name(f"{key} {url}"))

    def free_bytes(self) -> int:
        """The disk space that downloads may take."""
        return shutil.disk_usage(self.folder).free - _MARGIN_BYTES

    def collect(self, referenced: Iterable[str], partial_keys: Iterable[tuple[str, str]], before_s: float) -> Collected:
        """Remove content that no object has, and downloads that none needs, if they are older than `before_s`."""
        wanted = set(referenced)
        downloads = {_name(f"{key} {url}") for key, url in partial_keys}
        old = [path for path in self._content.iterdir() if path.name not in wanted]
        old += [path for path in self._partial.iterdir() if path.name.partition(".")[0] not in downloads]
        files = size = 0
        for path in old:
            about = path.stat()
            if max(about.st_mtime, about.st_ctime) < before_s:
                path.unlink(missing_ok=True)
                files, size = files + 1, size + about.st_size
        return Collected(files, size)

    def used_bytes(self) -> int:
        """The size of all content and of downloads in progress."""
        return sum(each.stat().st_size for folder in (self._content, self._partial) for each in folder.iterdir())

    def hashed(self, sha256: str) -> hashlib._Hash | None:
        """The hash of a content, read from the disk; None if the file is missing or has other content. The hash of an
        image with a configuration at its end is computed from it."""
        found = hashlib.sha256()
        try:
            with self.path(sha256).open("rb") as stream:
                while block := stream.read(_READ_BYTES):
                    found.update(block)
        except OSError:
            return None
        if found.hexdigest() == sha256:
            return found
        self.path(sha256).rename(self._partial / f"{sha256}.damaged")
        return None

    def _object_path(self, key: str) -> Path:
        return self._objects / f"{_name(key)}.json"


class PartialFile:
    """A download in progress. The lock ends with `close`, and with the process."""

    def __init__(self, path: Path, stream: FileIO) -> None:
        self.path = path
        self._validators = path.with_name(f"{path.name}.json")
        self._stream = stream

    @classmethod
    def locked(cls, path: Path) -> PartialFile | None:
        """Open and lock the file; None while another process has it."""
        stream = FileIO(path, "a+")
        try:
            fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            stream.close()
            return None
        return cls(path, stream)

    @property
    def size(self) -> int:
        return os.fstat(self._stream.fileno()).st_size

    def validators(self) -> Validators | None:
        """The validators of the file from the beginning of the download."""
        try:
            return msgspec.json.decode(self._validators.read_bytes(), type=Validators)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def restart(self, validators: Validators | None) -> None:
        """Remove the content, since the file is another one now."""
        self._stream.truncate(0)
        if validators is None:
            self._validators.unlink(missing_ok=True)
        else:
            _write(self._validators, msgspec.json.encode(validators))

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self._stream.fileno(), size, offset)

    def append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._stream.write(view) :]

    def finish(self, target: Path) -> None:
        """Give the file its final name. The content is on the disk before the name is."""
        os.fsync(self._stream.fileno())
        os.fchmod(self._stream.fileno(), 0o440)
        self.path.replace(target)
        self._validators.unlink(missing_ok=True)
        _sync_folder(target.parent)

    def close(self) -> None:
        self._stream.close()


def _name(text: str) -> str:
    """A file name for any text."""
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _write(path: Path, content: bytes) -> None:
    """Write a small file atomically."""
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(path)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
