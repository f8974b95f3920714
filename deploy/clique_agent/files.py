"""The two files of a daemon, replaced only when their text changes."""

from __future__ import annotations

from pathlib import Path

from deploy.atomic_files import atomic_write
from eventstore.errors import PermanentError
from projections.cliques.files import merge_hosts


class DaemonFiles:
    """The peers file, and the managed mapping in a hosts file. The other lines of the hosts file stay."""

    def __init__(self, peers: Path, hosts: Path) -> None:
        self._peers = peers
        self._hosts = hosts

    def write(self, peers: str, mapping: str) -> bool:
        """Write both files; returns whether one of them has changed. Raises PermanentError."""
        is_new = _replace(self._peers, peers)
        return _replace(self._hosts, merge_hosts(_text(self._hosts), mapping)) or is_new


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise PermanentError(f"{path}: cannot be read: {error}") from error


def _replace(path: Path, text: str) -> bool:
    if path.exists() and _text(path) == text:
        return False
    if path.exists() and _is_mount(path):
        _overwrite(path, text)
    else:
        with atomic_write(path) as partial:
            partial.write_text(text)
    return True


def _is_mount(path: Path) -> bool:
    """Whether the file itself is a mount point, such as the kubelet's /etc/hosts. A rename over a mount point fails."""
    return (
        path.stat().st_dev != path.parent.stat().st_dev or str(path) in Path("/proc/self/mountinfo").read_text().split()
    )


def _overwrite(path: Path, text: str) -> None:
    """Write the file in place: a file that is a mount point cannot be replaced atomically."""
    try:
        path.write_text(text)
    except OSError as error:
        raise PermanentError(f"{path}: cannot be written: {error.strerror}") from error
