"""Checks whether a process of the plane can run on this host with its settings: each finding names a fault and its
remedy.

The checks change nothing, and a failed check does not prevent the others. A plane that already runs here is no fault:
it holds the lock and the ports.
"""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import stat
import struct
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
from cryptography import x509
from google.protobuf.internal import api_implementation

from deploy.host.file_limits import FILES_MAX, ConnectionLimitsPerListener, fit_connection_limits
from deploy.host.listen_addresses import bind_listener, os_error_text
from deploy.host.storage import LOG_FOLDER
from deploy.settings.settings import Address, Settings
from deploy.tls.certificates import Certificates
from deploy.tls.revocations import read_serials
from eventstore.errors import PlaneError

FREE_BYTES_MIN = 1 << 30
FILES_MIN = 2_048
_FLOCK = struct.Struct("hhqqi")
"""A lock as in fcntl(2): type, whence, start, length, and the owner's process id."""
LEFT_SHARE_MIN = 0.1
"""A certificate is reported if less than this share of its lifetime is left: rotation normally happens earlier."""
PACKAGES = ("grpcio", "protobuf", "aiokafka", "rocksdict", "fastavro", "cryptography")


class Finding(msgspec.Struct, frozen=True):
    """One finding. `advice` is the remedy for a finding that is not `ok`."""

    check: str
    ok: bool
    found: str
    advice: str = ""


def check_program() -> Iterator[Finding]:
    """The versions and builds of Python and libraries."""
    python = ".".join(map(str, sys.version_info[:3]))
    fits = sys.version_info >= (3, 11) and not sys.flags.optimize
    yield Finding("python", fits, python, "" if fits else "run Python 3.11 or later, without -O")
    for package in PACKAGES:
        try:
            yield Finding(package, True, version(package))
        except PackageNotFoundError:
            yield Finding(package, False, "not installed", "install dpuplane again: pip install dpuplane")
    parser = api_implementation.Type()
    advice = "unset PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION, or install protobuf from a wheel"
    yield Finding("protobuf parser", parser == "upb", parser, "" if parser == "upb" else advice)


def check_folder(name: str, folder: Path) -> Iterator[Finding]:
    """Check a folder of the process, or the parent in which it would be created."""
    there = folder
    try:
        while not there.exists() and there != there.parent:
            there = there.parent
    except PermissionError:
        yield Finding(
            name, False, f"{folder} is not readable by user {os.getuid()}", "run doctor as the user of the plane"
        )
        return
    if not there.is_dir():
        yield Finding(name, False, f"{there} is not a folder", f"give another folder for {name}")
        return
    mode = stat.S_IMODE(there.stat().st_mode)
    may_write = os.access(there, os.W_OK | os.X_OK)
    what = f"{folder} (mode {mode:03o})" if there == folder else f"{folder} does not exist yet and would be created"
    yield Finding(name, may_write, what, "" if may_write else f"give user {os.getuid()} write permission for {there}")
    if there == folder and mode & stat.S_IWOTH:
        yield Finding(f"{name} permissions", False, f"every user may write to {folder}", f"chmod 700 {folder}")
    free = shutil.disk_usage(there).free
    enough = free >= FREE_BYTES_MIN
    advice = "" if enough else f"free at least {FREE_BYTES_MIN >> 30} GiB, or move {name} to a larger disk"
    yield Finding(f"{name} disk", enough, f"{free / (1 << 30):,.1f} GiB free", advice)


def check_files(settings: Settings) -> Finding:
    """The limit of open files, and the share of it for connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    wanted = ConnectionLimitsPerListener(
        settings.http_connections, settings.api_connections, settings.agent_connections
    )
    left = fit_connection_limits(files, wanted)
    found = f"{files} may be open: connections of http {left.http}, of listen {left.api}, of agents {left.agents}"
    advice = "" if files >= FILES_MIN else f"raise the hard limit of open files (LimitNOFILE) to {FILES_MAX}"
    return Finding("files", files >= FILES_MIN, found, advice)


def is_running(settings: Settings) -> bool:
    """Whether a process owns the embedded log; False if this user may not open the lock. The lock is only queried:
    taking it could stop a plane that is starting.
    """
    if settings.data is None:
        return False
    try:
        with (settings.data / LOG_FOLDER / "LOCK").open("rb") as lock:
            found = fcntl.fcntl(lock, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return False
    return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)


def check_ports(settings: Settings, *, running: bool) -> Iterator[Finding]:
    """Check whether each listener can be opened."""
    for name in ("listen", "http", "agents"):
        address: Address = getattr(settings, name)
        fault = _fault_of_port(address)
        if fault and running:
            yield Finding(name, True, f"{address}: in use, and a plane runs here")
        else:
            advice = f"stop the process that uses it, or give another address for {name}" if fault else ""
            yield Finding(name, not fault, f"{address}: {fault}" if fault else f"{address} is free", advice)


def _fault_of_port(address: Address) -> str:
    try:
        bind_listener(address).close()
    except OSError as error:
        return os_error_text(error)
    return ""


def check_certificates(settings: Settings, now: datetime) -> Iterator[Finding]:
    """Check the certificates in the settings, and the time until they expire."""
    if settings.tls_cert is None or settings.tls_key is None or settings.tls_client_ca is None:
        yield Finding("tls", True, "off: every listener is on the loopback" if not settings.insecure else "off")
    else:
        try:
            used = Certificates(settings.tls_cert, settings.tls_key, settings.tls_client_ca, settings.trust_domain)
            yield Finding("tls", True, f"{used.principal} of {used.trust_domain}")
        except PlaneError as error:
            yield Finding("tls", False, str(error), "give files that belong together; `dpuplane certs show` reads one")
    try:
        settings.kafka_security.options()
    except PlaneError as error:
        yield Finding("kafka access", False, str(error), "give valid files that this user can read")
    for name in ("tls_cert", "tls_client_ca", "kafka_cert_file", "kafka_ca_file"):
        path: Path | None = getattr(settings, name)
        if path is not None:
            yield from _expiries(name, path, now)


def check_revocations(settings: Settings) -> Iterator[Finding]:
    """Check the list of revoked certificates: a process with an unreadable list does not start."""
    if settings.tls_revoked is None:
        return
    try:
        count = len(read_serials(settings.tls_revoked))
    except PlaneError as error:
        yield Finding("tls_revoked", False, str(error), "correct the list: a process does not start with it")
    else:
        yield Finding("tls_revoked", True, f"{settings.tls_revoked}: {count} serial numbers")


def _expiries(name: str, path: Path, now: datetime) -> Iterator[Finding]:
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        yield Finding(name, False, f"{path}: {error}", "give a PEM file with a certificate")
        return
    for certificate in found:
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        until = f"{certificate.subject.rfc4514_string() or path}: until {end:%Y-%m-%d %H:%M}Z"
        if now < begin:
            yield Finding(name, False, f"{until}, but only from {begin:%Y-%m-%d %H:%M}Z on", "set the clock, or wait")
        elif now > end:
            yield Finding(name, False, f"{until}: it has expired", f"renew {path}")
        else:
            short = (end - now) < (end - begin) * LEFT_SHARE_MIN
            yield Finding(
                name, not short, until, f"renew {path}: less than a tenth of its lifetime is left" if short else ""
            )


def check_host(settings: Settings, now_ms: int) -> list[Finding]:
    """All checks that need neither the log nor another machine."""
    running = is_running(settings)
    found = list(check_program())
    for name, folder in (("data", settings.data), ("state", settings.state)):
        found += check_folder(name, folder) if folder is not None else ()
    found.append(check_files(settings))
    if running:
        found.append(Finding("data lock", True, "a plane runs on this folder"))
    found += check_ports(settings, running=running)
    found += check_certificates(settings, datetime.fromtimestamp(now_ms / 1_000, UTC))
    found += check_revocations(settings)
    return found
