"""The content of a rshim's `misc`, as drivers show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.host_agent import rshim
from deploy.host_agent.rshim import FollowedLog, Misc, clear_log, keep_log, parsed, read_misc, write_misc

SHOWN = """DISPLAY_LEVEL   2 (0:basic, 1:advanced, 2:log)
BF_MODE         DPU mode
BOOT_MODE       1 (0:rshim, 1:emmc, 2:emmc-boot-swap)
DEV_NAME        pcie-0000:e1:00.2
UP_TIME         4172(s)
---------------------------------------
             Log Messages
---------------------------------------
 INFO[PSC]: PSC BL1 START
 INFO[BL2]: start
 INFO[BL2]: boot mode (emmc)
 INFO[UEFI]: exit Boot Service
 INFO[MISC]: Linux up
 INFO[MISC]: : DPU is ready
"""


def log(*lines: str) -> Misc:
    return parsed("UP_TIME         3(s)\n" + "".join(f" {line}\n" for line in lines))


def test_a_dpu_that_runs_its_operating_system_is_ready() -> None:
    found = parsed(SHOWN)
    assert (found.up_s, found.is_ready, found.installs, found.fault) == (4172, True, False, "")
    assert found.lines[0] == "INFO[BL2]: start"


@pytest.mark.parametrize(
    "line", ["Ubuntu installation started", "Installing OS image", "Installation finished", "Rebooting..."]
)
def test_only_an_installer_writes_of_an_installation(line: str) -> None:
    assert log("INFO[BL2]: start", f"INFO[MISC]: {line}").installs
    assert not log(f"INFO[MISC]: {line}", "INFO[BL2]: start", "INFO[MISC]: Linux up").installs, "of an earlier boot"
    assert not log("INFO[BL2]: start", "INFO[UEFI]: Installing a key").installs


@pytest.mark.parametrize("line", ["Installation finished", ": Installation finished", "Rebooting..."])
def test_only_the_last_line_of_an_installer_is_its_end(line: str) -> None:
    assert log("INFO[BL2]: start", f"INFO[MISC]: {line}").has_ended
    assert not log(f"INFO[MISC]: {line}", "INFO[BL2]: start", "INFO[MISC]: DPU is ready").has_ended
    for other in ("Installing OS image", "Ubuntu installation completed", "Rebooting BMC...", "Updating NIC firmware"):
        assert not log("INFO[BL2]: start", f"INFO[MISC]: {other}").has_ended


def test_a_fault_is_the_first_line_about_one() -> None:
    found = log("INFO[BL2]: start", "ERR[MISC]: Failed to write the eMMC", "ERR[MISC]: more")
    assert found.fault == "ERR[MISC]: Failed to write the eMMC"
    assert log("INFO[MISC]: Installation failed").fault
    assert not log("WARN[UEFI]: no PXE").fault


@pytest.mark.parametrize("text", ["", "\0\xff", "UP_TIME never\n", "INFO[]: x\n", "x" * 100_000])
def test_a_strange_content_says_nothing(text: str) -> None:
    assert parsed(text) == Misc(-1, ())


def test_the_log_is_asked_for_once(tmp_path: Path) -> None:
    (tmp_path / "misc").write_text("DISPLAY_LEVEL   0 (0:basic)\nUP_TIME         7(s)\n")
    for _ in range(2):
        assert read_misc(tmp_path).up_s == 7
    assert (tmp_path / "misc").read_text().count("DISPLAY_LEVEL 2\n") == 1
    with pytest.raises(FileNotFoundError):
        write_misc(tmp_path / "missing", "SW_RESET 1")
    assert not (tmp_path / "missing").exists()


def test_a_line_takes_a_word_and_those_of_its_text() -> None:
    assert log().words == 0
    assert log("INFO[BL2]: start").words == 2
    assert log("INFO[MISC]: 12345678", "INFO[MISC]: 123456789", "INFO[MISC]: ").words == 2 + 3 + 1
    assert log("INFO[PSC]: PSC BL1 START", "INFO[BL2]: start").words == 3 + 2, "lines of an earlier boot take room, too"
    assert log("INFO[MISC]: " + "\u00e9" * 5).words == 1 + 2


def test_lines_that_were_cleared_belong_to_the_boot_until_the_next_one() -> None:
    found, begin, line = FollowedLog(), "INFO[BL2]: start", "INFO[MISC]: Installing OS image"
    assert found.shown(Misc(1, (begin,))).lines == (begin,)
    found.clear(Misc(2, (begin, line), 7))
    assert found.shown(Misc(2, ())) == Misc(2, (begin, line))
    later = found.shown(Misc(3, ("INFO[MISC]: DPU is ready",), 4))
    assert (later.installs, later.is_ready, later.words) == (True, True, 4)
    found.clear(Misc(4, ("INFO[MISC]: more",), 2))
    assert found.shown(Misc(4, ())).lines == (begin, line, "INFO[MISC]: more")
    assert found.shown(Misc(0, ())).lines == (), "the time since the reset began anew"
    found.clear(Misc(1, (line,)))
    assert found.shown(Misc(5, (begin,))).lines == (begin,)
    assert found.shown(Misc(6, (begin,))).lines == (begin,)


def test_the_log_is_cleared_by_one_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "misc").write_text(SHOWN)
    assert clear_log(tmp_path) == parsed(SHOWN)
    assert (tmp_path / "misc").read_text() == f"{SHOWN}CLEAR_ON_READ 1\nCLEAR_ON_READ 0\n"

    def fail(folder: Path) -> Misc:
        raise OSError

    monkeypatch.setattr(rshim, "read_misc", fail)
    with pytest.raises(OSError):
        clear_log(tmp_path)
    assert (tmp_path / "misc").read_text().endswith("CLEAR_ON_READ 1\nCLEAR_ON_READ 0\n" * 2)


def test_a_driver_that_cannot_clear_the_log_is_not_asked_to_read_it(tmp_path: Path) -> None:
    assert clear_log(tmp_path) is None
    keep_log(tmp_path)
    assert not [*tmp_path.iterdir()]
