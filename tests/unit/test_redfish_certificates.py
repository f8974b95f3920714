"""What a process remembers of the certificates of BMCs."""

from __future__ import annotations

from drivers.redfish.certificates import PINNED_MAX, PresentedCertificates


def test_the_last_certificate_of_each_bmc_is_known() -> None:
    presented = PresentedCertificates()
    assert presented.of("a:443") is None
    presented.keep("a:443", b"first")
    presented.keep("b:443", b"other")
    presented.keep("a:443", b"second")
    assert (presented.of("a:443"), presented.of("b:443")) == (b"second", b"other")


def test_the_bmcs_that_were_looked_at_last_are_known() -> None:
    presented = PresentedCertificates()
    for number in range(PINNED_MAX):
        presented.keep(str(number), b"")
    presented.keep("0", b"again")
    presented.keep("new", b"")
    assert [presented.of(host) for host in ("0", "1", "2", "new")] == [b"again", None, b"", b""]
