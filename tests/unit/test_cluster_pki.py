"""Certificates and kubeconfigs."""

import stat
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from e2e.cluster import kubeconfig
from e2e.cluster.pki import Authority, service_account_keys


def test_a_client_certificate_names_user_and_groups(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    pair = authority.client("admin", user="me", groups=["system:masters"])
    cert = x509.load_pem_x509_certificate(pair.cert.read_bytes())
    assert [item.value for item in cert.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["me"]
    assert [item.value for item in cert.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["system:masters"]
    ca = x509.load_pem_x509_certificate(authority.pair.cert.read_bytes())
    cert.verify_directly_issued_by(ca)
    assert stat.S_IMODE(pair.key.stat().st_mode) == 0o600


def test_a_serving_certificate_names_hosts_and_addresses(tmp_path: Path) -> None:
    pair = Authority(tmp_path, "ca").server("s", common_name="s", hosts=["localhost", "127.0.0.1"])
    cert = x509.load_pem_x509_certificate(pair.cert.read_bytes())
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


def test_a_second_start_keeps_everything(tmp_path: Path) -> None:
    first = Authority(tmp_path, "ca").client("admin", user="me").cert.read_bytes()
    keys = service_account_keys(tmp_path).key.read_bytes()
    assert Authority(tmp_path, "ca").client("admin", user="me").cert.read_bytes() == first
    assert service_account_keys(tmp_path).key.read_bytes() == keys


def test_a_half_written_pair_is_made_again(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    pair = authority.client("admin", user="me")
    pair.cert.write_bytes(b"")
    again = authority.client("admin", user="me")
    key = x509.load_pem_x509_certificate(again.cert.read_bytes()).public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)


def test_a_kubeconfig_stands_alone_and_is_private(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    path = kubeconfig.write(
        tmp_path / "k" / "config",
        cluster="c",
        server="https://127.0.0.1:1",
        ca=authority.pair.cert,
        client=authority.client("admin", user="me"),
    )
    document = yaml.safe_load(path.read_text())
    assert document["current-context"] == "c"
    assert str(tmp_path) not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
