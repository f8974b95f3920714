"""The files of `-f`: files, folders and stdin, as manifests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from deploy.cli.resources.manifests import Manifests, merged, read_manifests
from deploy.settings.yaml_text import CHARACTERS_MAX

F = TypeVar("F", bound=Callable[..., Any])

SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"


def files_option(*, required: bool) -> Callable[[F], F]:
    """Pass the values of `-f` as `files`, and `-R` as `recursive`."""
    file = click.option(
        "--filename",
        "-f",
        "files",
        multiple=True,
        required=required,
        metavar="FILE|DIR|-",
        help="Manifests: a file, a folder with *.yaml, *.yml and *.json, or - for stdin; repeatable.",
    )
    recursive = click.option("--recursive", "-R", is_flag=True, help="Read the folders in a folder too.")

    def decorated(function: F) -> F:
        return file(recursive(function))

    return decorated


def read_files(files: Sequence[str], namespace: str, *, recursive: bool = False, is_checked: bool = True) -> Manifests:
    """The objects of all files. A file that cannot be read is a fault."""
    return merged(_parts(files, namespace, recursive=recursive, is_checked=is_checked))


def _parts(files: Sequence[str], namespace: str, *, recursive: bool, is_checked: bool) -> Iterator[Manifests]:
    for given in files:
        try:
            for file in _files_of(given, recursive=recursive):
                yield _part(file, namespace, is_checked=is_checked)
        except OSError as error:
            yield Manifests([], [f"{given}: {error.strerror}"], [], [])


def _files_of(given: str, *, recursive: bool) -> list[str]:
    """The files that a value of `-f` stands for, sorted. Raises OSError."""
    path = Path(given)
    if given == STDIN or not path.is_dir():
        return [given]
    inside = path.rglob("*") if recursive else path.iterdir()
    return sorted(str(each) for each in inside if each.suffix in SUFFIXES and each.is_file())


def _part(file: str, namespace: str, *, is_checked: bool) -> Manifests:
    name = "stdin" if file == STDIN else file
    try:
        with click.open_file(file, encoding="utf-8") as stream:
            text: str = stream.read(CHARACTERS_MAX + 1)  # a device has no end
    except UnicodeDecodeError as error:
        return Manifests([], [f"{name}: byte {error.start + 1} is not UTF-8"], [], [])
    except OSError as error:
        return Manifests([], [f"{name}: {error.strerror}"], [], [])
    return read_manifests(text, name, namespace, is_checked=is_checked)
