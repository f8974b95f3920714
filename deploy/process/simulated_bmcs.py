"""The shared parts of the simulated BMCs of `dpuplane simulator`, and the folder with their authority and password."""

from __future__ import annotations

import secrets
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from deploy.atomic_files import atomic_write
from deploy.host.listen_addresses import bind_listener, listen_errors
from deploy.settings.addresses import Address
from deploy.tls.authority import CA_CERT, CA_KEY, Authority, BadAuthority
from drivers.redfish.certificates import BmcAuthority
from drivers.simulators.redfish.bmcs import BmcOptions
from drivers.simulators.redfish.faults import Shares
from eventstore.errors import FatalError

PASSWORD = "password"
PASSWORD_BYTES = 18
TRUST_DOMAIN = "simulated-bmcs.local"
AUTHORITY_VALID = timedelta(days=3_650)


def simulated_bmc_options(
    listen: Address, folder: Path | None, image_ca: Path | None, failing: float, *, now_ms: int
) -> BmcOptions:
    """The options of BMCs. A folder gets an authority and a password, unless it has them. Raises FatalError."""
    _check_host(listen)
    authority = None if folder is None else _authority(folder, now_ms)
    return BmcOptions(listen.host, listen.port, authority, _trusts(image_ca), shares=Shares(fail=failing))


def _check_host(listen: Address) -> None:
    """Raise FatalError for a host that is not of this machine. A port in use is no fault: the next one is taken."""
    with listen_errors("bmc", listen):
        bind_listener(Address(listen.host, 0)).close()


def _authority(folder: Path, now_ms: int) -> BmcAuthority:
    try:
        if not (folder / CA_CERT).exists():
            now = datetime.fromtimestamp(now_ms / 1_000, UTC)
            Authority.make(folder, TRUST_DOMAIN, now=now, valid=AUTHORITY_VALID)
        if not (folder / PASSWORD).exists():
            with atomic_write(folder / PASSWORD, mode=0o600) as fresh:
                fresh.write_text(secrets.token_urlsafe(PASSWORD_BYTES))
        return BmcAuthority((folder / CA_CERT).read_bytes(), (folder / CA_KEY).read_bytes())
    except BadAuthority as error:
        raise FatalError(f"bmc-folder: {error}") from error
    except OSError as error:
        raise FatalError(f"bmc-folder: {error.filename} cannot be used: {error.strerror}") from error


def _trusts(image_ca: Path | None) -> ssl.SSLContext | None:
    try:
        return None if image_ca is None else ssl.create_default_context(cafile=str(image_ca))
    except (OSError, ssl.SSLError) as error:
        raise FatalError(f"image-ca: {image_ca} is not a readable PEM file of certificates: {error}") from error
