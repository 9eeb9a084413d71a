"""Certificates of one cluster: a CA, what it signs, and the service account key.

They live as long as the cluster and are made once: a second `up` finds the
same CA, so kubeconfigs that a user copied keep working.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = datetime.timedelta(days=3650)
# A machine's clock may be set back a little between two starts.
_SKEW = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Pair:
    """Files of a certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority in a folder: signs each name once and reads it back afterwards."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self.pair = Pair(folder / f"{name}.crt", folder / f"{name}.key")
        folder.mkdir(parents=True, exist_ok=True)
        if _complete(self.pair):
            self._key = _load_key(self.pair.key)
            self._cert = x509.load_pem_x509_certificate(self.pair.cert.read_bytes())
            return
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            _certificate(subject, subject, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_key_usage(ca=True), critical=True)
        )
        self._cert = builder.sign(self._key, hashes.SHA256())
        _write(self.pair, self._cert, self._key)

    def server(self, name: str, *, common_name: str, hosts: Sequence[str]) -> Pair:
        """Sign a serving certificate for host names and addresses."""
        return self._leaf(name, common_name, (), hosts, ExtendedKeyUsageOID.SERVER_AUTH)

    def client(self, name: str, *, user: str, groups: Sequence[str] = ()) -> Pair:
        """Sign a client certificate: the API server reads the user from CN, the groups from O."""
        return self._leaf(name, user, groups, (), ExtendedKeyUsageOID.CLIENT_AUTH)

    def _leaf(
        self,
        name: str,
        common_name: str,
        groups: Sequence[str],
        hosts: Sequence[str],
        usage: x509.ObjectIdentifier,
    ) -> Pair:
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        if _complete(pair):
            return pair
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
        builder = (
            _certificate(x509.Name(attributes), self._cert.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(ca=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([general_name(host) for host in hosts]), critical=False
            )
        _write(pair, builder.sign(self._key, hashes.SHA256()), key)
        return pair


def service_account_keys(folder: Path) -> Pair:
    """Make the key pair that signs service account tokens; `cert` is the bare public key."""
    pair = Pair(folder / "service-account.pub", folder / "service-account.key")
    if not _complete(pair):
        key = ec.generate_private_key(ec.SECP256R1())
        _write_private(pair.key, key)
        pair.cert.write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
    return pair


def general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _complete(pair: Pair) -> bool:
    # The certificate is written last, so it stands for both.
    return pair.key.is_file() and pair.cert.is_file() and pair.cert.stat().st_size > 0


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _LIFE)
    )


def _key_usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=not ca,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{path} is not an elliptic curve key")
    return key


def _write(pair: Pair, cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    _write_private(pair.key, key)
    pair.cert.write_bytes(cert.public_bytes(serialization.Encoding.PEM))


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    data = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,  # SEC 1, as `openssl ecparam` writes it
        serialization.NoEncryption(),
    )
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
