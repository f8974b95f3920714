"""`dpuplane certs`: a certificate authority for development, the content of certificates, and revocation."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import click

from deploy.cli.shared import output as out
from deploy.cli.shared.errors import Refused
from deploy.cli.shared.param_types import FiniteRange, Folder
from eventstore.errors import PermanentError, PlaneError
from projections.field_checks import quoted
from projections.fleet.withdrawals.principals import (
    PLANE,
    PRINCIPAL_ROLES,
    Principal,
    check_principal,
    check_trust_domain,
)

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MAX_BYTES = 1 << 20
"""Maximum size of a certificate file in bytes. Without it, reading a device file such as /dev/zero would never end."""
_LABEL = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}"
_HOST_NAME = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")


def _hosts(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Host names that clients can dial. A certificate with any other name would be issued, but no client would accept
    it."""
    for host in given:
        try:
            ip_address(host)
        except ValueError as error:
            if len(host) > 253 or not _HOST_NAME.fullmatch(host):
                rule = "must be a host's name (xn--... if in other letters than a-z) or address, without a port"
                raise click.BadParameter(f"{quoted(host)} {rule}") from error
    return given


_DIR = click.option(
    "--dir",
    "folder",
    type=Folder(),
    default=Path("certs"),
    show_default=True,
    metavar="DIR",
    help="Folder of the authority and its certificates.",
)


@click.group(epilog="\b\nExample: dpuplane certs init && dpuplane certs issue operator ann")
def certs() -> None:
    """Issue and revoke certificates for development and tests; in production use SPIRE, cert-manager or your own
    authority.

    Every certificate has one URI name, spiffe://TRUST_DOMAIN/ROLE/NAME. No other field counts.
    """


@certs.command(epilog="Example: dpuplane certs init --trust-domain lab.example.org")
@_DIR
@click.option(
    "--trust-domain", default="dpuplane.local", show_default=True, metavar="NAME", help="Trust domain of all names."
)
@click.option("--days", type=click.IntRange(1, 3_650), default=365, show_default=True, help="Days of validity.")
def init(folder: Path, trust_domain: str, days: int) -> None:
    """Create an authority: its key (ca.key, private) and its certificate (ca.pem, for every process)."""
    from deploy.tls.authority import Authority

    if fault := check_trust_domain("trust-domain", trust_domain):
        raise click.UsageError(fault)
    try:
        made = Authority.make(folder, trust_domain, now=datetime.now(UTC), valid=timedelta(days=days))
    except PermanentError as error:
        raise Refused(str(error)) from error
    click.echo(f"{made.cert}: authority of spiffe://{trust_domain}")


@certs.command(epilog="\b\nExample: dpuplane certs issue plane local --dns api.example.org")
@click.argument("role", metavar="ROLE", type=click.Choice(PRINCIPAL_ROLES))
@click.argument("name")
@click.option(
    "--dns",
    "hosts",
    multiple=True,
    callback=_hosts,
    metavar="HOST",
    help="Host name or address that clients dial; repeatable.",
)
@click.option("--days", type=FiniteRange(0.0001, 3_650), default=30.0, show_default=True, help="Days of validity.")
@_DIR
def issue(role: str, name: str, hosts: tuple[str, ...], days: float, folder: Path) -> None:
    """Issue a certificate and its key, ROLE@NAME.pem and ROLE@NAME.key. Existing files are replaced.

    ROLE is viewer, operator, approver, node-agent, host-agent, dpu-agent, provisioner, simulator or plane. The name of
    a host-agent is NAMESPACE/HOST. A certificate of role `plane` also names the hosts that clients dial, in addition to
    the loopback.
    """
    from deploy.tls.authority import Authority

    if fault := check_principal("name", role, name):
        raise click.UsageError(fault)
    if hosts and role != PLANE:
        raise click.UsageError(f"--dns: host names are for role plane only; role {role} is not dialed")
    names = (*LOOPBACK, *hosts) if role == PLANE else ()
    try:
        authority = Authority.open(folder)
        issued = authority.issue(Principal(role, name), hosts=names, now=datetime.now(UTC), valid=timedelta(days=days))
    except (PermanentError, ValueError) as error:
        raise Refused(str(error)) from error
    click.echo(f"{issued.cert}: spiffe://{authority.trust_domain}/{role}/{name}")


@certs.command(epilog="Example: dpuplane certs show certs/operator@ann.pem")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--list",
    "listed",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="List of revoked certificates; show whether this one is in it.",
)
@click.option(
    "--output", "-o", type=click.Choice(["table", "json", "yaml"]), default="table", help="Format of the result."
)
def show(file: Path, listed: Path | None, output: str) -> None:
    """Show the principal, the hosts and the expiry of a certificate."""
    from commands.rpc.authentication import load_certificate
    from deploy.tls.revocations import read_serials

    try:
        with file.open("rb") as stream:
            certificate = load_certificate(stream.read(_MAX_BYTES))
        as_dict = _as_dict(certificate)
        if listed is not None:
            as_dict["revoked"] = "yes" if certificate.serial_number in read_serials(listed) else "no"
    except ValueError as error:
        raise Refused(f"file: {file} must be a certificate in PEM or DER") from error
    except PlaneError as error:
        raise Refused(str(error)) from error
    if output != "table":
        out.print_value(as_dict, output)
        return
    out.print_fields((name, ", ".join(value) if isinstance(value, list) else value) for name, value in as_dict.items())


_LIST = click.option(
    "--list",
    "listed",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("certs/revoked.txt"),
    show_default=True,
    metavar="FILE",
    help="The file that `tls_revoked` names; created if absent.",
)


@certs.command(epilog="\b\nExample: dpuplane certs revoke certs/operator@ann.pem --list certs/revoked.txt")
@click.argument("certificates", nargs=-1, required=True, metavar="CERTIFICATE...")
@_LIST
def revoke(certificates: tuple[str, ...], listed: Path) -> None:
    """Add certificates to a list of revoked ones: files in PEM or DER, or serial numbers from `certs show`.

    Every process whose setting `tls_revoked` names the list refuses these certificates within two seconds: their calls
    and requests are refused, and open links of agents and feeds of the page are closed.
    """
    from deploy.atomic_files import atomic_write
    from deploy.tls.revocations import read_serials

    try:
        known = read_serials(listed) if listed.exists() else frozenset()
        found = dict(_revoked(each) for each in certificates)
        fresh = {serial: whose for serial, whose in found.items() if serial not in known}
        if fresh:
            before = listed.read_text(encoding="utf-8") if listed.exists() else "# serial number  # certificate\n"
            lines = "".join(f"{serial:x}  # {whose}\n" for serial, whose in fresh.items())
            with atomic_write(listed) as partial:
                partial.write_text(f"{before.rstrip()}\n{lines}", encoding="utf-8")
    except PlaneError as error:
        raise Refused(str(error)) from error
    for serial, whose in found.items():
        click.echo(f"{listed}: {serial:x} ({whose}) {'added' if serial in fresh else 'is listed already'}")


def _revoked(text: str) -> tuple[int, str]:
    """The serial number of a certificate, given as a file or as that number, and a description of the certificate."""
    from commands.rpc.authentication import load_certificate, uri_names
    from deploy.tls.revocations import parse_serial

    path = Path(text)
    serial = None if path.is_file() else parse_serial(text)
    if serial is not None:
        return serial, "given by its serial number"
    try:
        with path.open("rb") as stream:
            certificate = load_certificate(stream.read(_MAX_BYTES))
    except OSError as error:
        reason = f"certificate: {quoted(text)} must be a file or a serial number of 1 to 40 hexadecimal digits"
        raise Refused(f"{reason}: {error.strerror}") from error
    except ValueError as error:
        raise Refused(f"certificate: {quoted(text)} must be a certificate in PEM or DER") from error
    whose = " ".join(uri_names(certificate)) or "no URI name"
    until = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
    return certificate.serial_number, f"{whose if whose.isprintable() else quoted(whose)}, valid until {until}"


def _as_dict(certificate: Any) -> dict[str, Any]:
    from cryptography import x509

    from commands.rpc.authentication import uri_names

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
    except x509.ExtensionNotFound:
        hosts = []
    now = datetime.now(UTC)
    return {
        "serial": f"{certificate.serial_number:x}",
        "names": uri_names(certificate),
        "hosts": hosts,
        "issuer": certificate.issuer.rfc4514_string(),
        "not_before": certificate.not_valid_before_utc.isoformat(),
        "not_after": certificate.not_valid_after_utc.isoformat(),
        "valid": "yes" if certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc else "no",
    }
