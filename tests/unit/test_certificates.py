"""The webhook's certificates over time."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from kvcachepool.certificates import BUNDLE, CERTIFICATE, KEY, Lifetimes, renewed

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("svc.ns.svc",)
DAY = timedelta(days=1)
LIFETIMES = Lifetimes(authority=90 * DAY, server=30 * DAY)


def made(
    now: datetime = NOW, names: tuple[str, ...] = NAMES, found: dict[str, bytes] | None = None
) -> dict[str, bytes]:
    fresh = renewed(found or {}, names, now, LIFETIMES)
    assert fresh is not None
    return fresh


def authorities(material: dict[str, bytes]) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(material[BUNDLE])


def test_what_is_made_is_good_and_stays() -> None:
    material = made()
    assert renewed(material, NAMES, NOW, LIFETIMES) is None
    assert renewed(material, NAMES, NOW + 19 * DAY, LIFETIMES) is None
    server = x509.load_pem_x509_certificate(material[CERTIFICATE])
    server.verify_directly_issued_by(authorities(material)[0])
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == list(NAMES)


def test_a_tls_library_takes_it(tmp_path: Path) -> None:
    for name, content in made(datetime.now(UTC)).items():
        (tmp_path / name).write_bytes(content)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(tmp_path / CERTIFICATE, tmp_path / KEY)
    client = ssl.create_default_context(cafile=str(tmp_path / BUNDLE))
    ours, theirs = (ssl.MemoryBIO() for _ in range(2))
    a = client.wrap_bio(ours, theirs, server_hostname=NAMES[0])
    b = server.wrap_bio(theirs, ours, server_side=True)
    for _ in range(4):
        for side in (a, b):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert a.getpeercert()


def test_the_servers_certificate_is_renewed_under_the_same_authority() -> None:
    material = made()
    later = made(NOW + 21 * DAY, found=material)
    assert later[BUNDLE] == material[BUNDLE]
    assert later[CERTIFICATE] != material[CERTIFICATE]
    assert later[KEY] != material[KEY]


def test_a_new_authority_keeps_the_former_one_in_the_bundle_until_it_ends() -> None:
    material = made()
    later = made(NOW + 61 * DAY, found=material)
    old, new = authorities(material)[0], authorities(later)
    assert new[1:] == [old]
    assert new[0] != old
    assert new[0].subject != old.subject
    x509.load_pem_x509_certificate(later[CERTIFICATE]).verify_directly_issued_by(new[0])
    much_later = made(NOW + 130 * DAY, found=later)
    assert old not in authorities(much_later)


def test_a_server_never_outlives_its_authority() -> None:
    material = made()
    for day in range(1, 200):
        found = renewed(material, NAMES, NOW + day * DAY, LIFETIMES)
        material = found or material
        server = x509.load_pem_x509_certificate(material[CERTIFICATE])
        assert server.not_valid_after_utc <= authorities(material)[0].not_valid_after_utc
        assert server.not_valid_after_utc > NOW + day * DAY


@pytest.mark.parametrize("broken", [BUNDLE, CERTIFICATE, KEY, "ca.key"])
@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_cannot_be_read_is_made_anew(broken: str, content: bytes) -> None:
    again = made(found=made() | {broken: content})
    assert renewed(again, NAMES, NOW, LIFETIMES) is None


def test_parts_of_two_makings_are_not_taken_for_one() -> None:
    one, other = made(), made()
    for name in (BUNDLE, CERTIFICATE, KEY):
        assert renewed(one | {name: other[name]}, NAMES, NOW, LIFETIMES) is not None, name


def test_another_name_needs_another_certificate_but_no_other_authority() -> None:
    material = made()
    again = made(names=("other.ns.svc",), found=material)
    assert again[BUNDLE] == material[BUNDLE]
