"""The commands in documents work as written, and their links lead to existing targets."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.support.documents import ROOT, RUN, blocks, calls, command_lines, documents, fault_of
from tests.support.terminal import terminal

LINK = re.compile(r"\]\(([^)\s]+)\)")
GUIDES = ("README.md", "deploy/README.md")
"""Documents whose blocks are run in order. The runbook is not among them, because its commands are about faults."""


def named(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("name", named(documents()))
def test_links_have_targets(name: str) -> None:
    path = ROOT / name
    text = path.read_text()
    for target in LINK.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if "://" in target:
            continue
        file, _, place = target.partition("#")
        found = path.parent / file if file else path
        assert found.exists(), f"{target} is not there"
        if place:
            assert place in {anchor(h) for h in re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE)}, target


@pytest.mark.parametrize("name", named(documents()))
def test_every_command_in_a_document_is_valid(name: str) -> None:
    faults = [fault_of(words) for line in command_lines((ROOT / name).read_text()) for words in calls(line)]
    assert [fault for fault in faults if fault] == []


def test_every_top_level_folder_has_a_readme_of_its_files() -> None:
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert folders == {"schemas", "eventstore", "projections", "commands", "drivers", "deploy", "tests"}
    for folder in folders:
        text = (ROOT / folder / "README.md").read_text().partition("\n## ")[0]
        assert "Start reading" in text and "**May touch:**" in text, folder
        for name in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE):
            for pattern in re.findall(r"`([^`]+)`", name):
                assert list((ROOT / folder).glob(pattern)), f"{folder}/README.md names {pattern}, which is not there"


def test_the_first_page_fits_two_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 80


@pytest.mark.kafka
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", GUIDES)
async def test_commands_in_documents_work_as_written(name: str, tmp_path: Path) -> None:
    async with terminal(tmp_path) as here:
        for block in blocks((ROOT / name).read_text()):
            for line in block.lines if block.mark == RUN else []:
                if shlex.split(line, comments=True):
                    ran = await here.type(line)
                    assert ran.status == 0, f"{line}\n{ran.stdout}\n{ran.stderr}"
