"""Secrets of a plane without Kubernetes: a file for each in a folder of this process, which only its user can read.

They are neither in the log nor in backups of it. Several processes of one plane each have a folder of their own, unless
it is on a volume that they share.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from commands.handlers.secrets import KeptSecret
from deploy.atomic_files import atomic_write
from deploy.settings.settings import Settings
from eventstore.errors import PermanentError

FOLDER = "secrets"
_FOLDER_MODE = 0o700
_FILE_MODE = 0o600


class SecretFolder:
    """A folder with a file for each Secret, by namespace and name. It is made with the first one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def write(
        self, secrets: Sequence[KeptSecret], removed: Sequence[tuple[str, str]]
    ) -> Sequence[tuple[str, str]]:
        """Keep and remove Secrets in a thread: each write waits for the disk."""
        return await asyncio.to_thread(self._write, secrets, removed)

    def _write(self, secrets: Sequence[KeptSecret], removed: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        for each in secrets:
            self.keep(each.namespace, each.name, each.kind, each.data)
        return [name for name in removed if self.remove(*name)]

    def keep(self, namespace: str, name: str, kind: str, data: Mapping[str, bytes]) -> None:
        """Keep a Secret, instead of an earlier one with its name. Raises PermanentError."""
        path = self._file(namespace, name)
        try:
            for folder in (self.path, path.parent):
                folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
                folder.chmod(_FOLDER_MODE)
        except OSError as error:
            raise PermanentError(f"{self.path}: cannot be written: {error.strerror}") from error
        encoded = {key: base64.b64encode(value).decode() for key, value in sorted(data.items())}
        with atomic_write(path, mode=_FILE_MODE) as partial:
            partial.write_text(json.dumps({"type": kind, "data": encoded}))

    def read(self, namespace: str, name: str) -> dict[str, bytes] | None:
        """The data of a Secret; None if there is none. Raises PermanentError, which does not quote the file."""
        path = self._file(namespace, name)
        try:
            found = json.loads(path.read_text())
            return {key: base64.b64decode(value) for key, value in found["data"].items()}
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PermanentError(f"{path}: cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
            raise PermanentError(f"{path}: is damaged; apply the Secret again") from None

    def remove(self, namespace: str, name: str) -> bool:
        """Remove a Secret. Returns False if there is none. Raises PermanentError."""
        path = self._file(namespace, name)
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise PermanentError(f"{path}: cannot be removed: {error.strerror}") from error
        return True

    def _file(self, namespace: str, name: str) -> Path:
        """The file of a Secret. Names of objects have no slash and begin with a letter or digit."""
        return self.path / namespace / f"{name}.json"


def secret_folder(settings: Settings) -> SecretFolder | None:
    """The folder of the settings: beside the log, else beside the saved folds; None without both."""
    folder = settings.data or settings.state
    return SecretFolder(folder / FOLDER) if folder is not None else None
