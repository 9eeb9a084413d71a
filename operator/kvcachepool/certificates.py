"""The webhook's own certificates: an authority that the API server is told of, and the server's certificate.

Pure but for the randomness of keys. The authority lives long, so that renewing the server's certificate changes nothing
for the API server; when the authority itself is renewed, the former one stays in the bundle until it ends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BUNDLE: Final = "ca.crt"
_AUTHORITY_KEY: Final = "ca.key"
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
_BACKDATED: Final = timedelta(minutes=5)
"""Clocks of other machines may be late."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long certificates are valid; each is renewed when a third is left."""

    authority: timedelta = timedelta(days=3650)
    server: timedelta = timedelta(days=365)


def renewed(
    found: Mapping[str, bytes], names: Sequence[str], now: datetime, lifetimes: Lifetimes = Lifetimes()
) -> dict[str, bytes] | None:
    """What has to be stored (by file name) instead of `found`; None while that is good for `names`.

    Whatever cannot be read, does not fit together or is of other names is made anew.
    """
    authority = _authority(found, now, lifetimes)
    former = _valid(_bundle(found), now)
    if authority is not None and _server_is_good(found, authority[0], names, now, lifetimes):
        return None
    certificate, key = authority or _make_authority(now, lifetimes)
    bundle = [certificate, *(other for other in former if other != certificate)]
    server, server_key = _make(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])]),
        now,
        min(lifetimes.server, certificate.not_valid_after_utc - now),
        issuer=(certificate, key),
        names=names,
    )
    return {
        BUNDLE: b"".join(_pem(c) for c in bundle),
        _AUTHORITY_KEY: _key_pem(key),
        CERTIFICATE: _pem(server),
        KEY: _key_pem(server_key),
    }


def _authority(
    found: Mapping[str, bytes], now: datetime, lifetimes: Lifetimes
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None:
    bundle, key = _bundle(found), _private_key(found.get(_AUTHORITY_KEY, b""))
    if not bundle or key is None or bundle[0].public_key() != key.public_key():
        return None
    return (bundle[0], key) if _fresh(bundle[0], now, lifetimes.authority) else None


def _server_is_good(
    found: Mapping[str, bytes], authority: x509.Certificate, names: Sequence[str], now: datetime, lifetimes: Lifetimes
) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(found.get(CERTIFICATE, b""))
        certificate.verify_directly_issued_by(authority)
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    key = _private_key(found.get(KEY, b""))
    return (
        key is not None
        and key.public_key() == certificate.public_key()
        and set(names) == set(alternatives.get_values_for_type(x509.DNSName))
        and _fresh(certificate, now, lifetimes.server)
    )


def _fresh(certificate: x509.Certificate, now: datetime, lifetime: timedelta) -> bool:
    return certificate.not_valid_after_utc - now > lifetime / 3


def _valid(certificates: Sequence[x509.Certificate], now: datetime) -> list[x509.Certificate]:
    return [certificate for certificate in certificates if certificate.not_valid_after_utc > now]


def _bundle(found: Mapping[str, bytes]) -> list[x509.Certificate]:
    try:
        return list(x509.load_pem_x509_certificates(found.get(BUNDLE, b"")))
    except ValueError:
        return []


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey | None:
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None


def _make_authority(now: datetime, lifetimes: Lifetimes) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    # A number in the name tells an authority from its former one: clients look an issuer up by name.
    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"kvcachepool-operator {x509.random_serial_number():x}"[:64])]
    )
    return _make(name, now, lifetimes.authority)


def _make(
    subject: x509.Name,
    now: datetime,
    lifetime: timedelta,
    *,
    issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None = None,
    names: Sequence[str] = (),
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A certificate and its key: of an authority, or of a server when it has an issuer."""
    key = ec.generate_private_key(ec.SECP256R1())
    authority, signing_key = issuer or (None, key)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.subject if authority is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + lifetime)
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=0 if authority is None else None), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), False)
    )
    if authority is not None:
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        builder = builder.add_extension(alternatives, False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
    return builder.sign(signing_key, hashes.SHA256()), key


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
