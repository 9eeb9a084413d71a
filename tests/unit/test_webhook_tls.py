"""Where the webhook's certificate comes from, and how a running server takes a new one."""

import base64
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kvcachepool.certificates import BUNDLE, CERTIFICATE, KEY, Lifetimes, renewed
from kvcachepool.cluster import ApiError
from kvcachepool.webhook_tls import CertificateError, Files, OwnSecret, Source, WebhookTls

Serve = Callable[[Source], WebhookTls]

NAMES = ("svc.ns.svc",)
DAY = timedelta(days=1)


class FakeCluster:
    """A Secret and a webhook configuration, with the API server's rule for resourceVersion."""

    def __init__(self) -> None:
        self.version = 1
        self.data: dict[str, str] = {}
        self.bundle: str | None = None
        self.writes: list[str] = []
        self.before_write = lambda: None
        self.missing: set[str] = set()

    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        assert name == "kvcp"
        if kind in self.missing:
            return None
        if kind == "Secret":
            return {"metadata": {"resourceVersion": str(self.version)}, "data": dict(self.data)}
        return {"webhooks": [{"name": "inject", "clientConfig": {"caBundle": self.bundle}}]}

    async def merge(
        self, kind: str, namespace: str | None, name: str, patch: dict[str, Any], *, strategic: bool = False
    ) -> None:
        self.before_write()
        if kind == "Secret":
            if patch["metadata"]["resourceVersion"] != str(self.version):
                raise ApiError(409, "changed")
            self.data |= patch["data"]
            self.version += 1
        else:
            assert strategic
            self.bundle = patch["webhooks"][0]["clientConfig"]["caBundle"]
        self.writes.append(kind)


class Clock:
    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now


def source(cluster: FakeCluster, clock: Clock, server: int = 30) -> OwnSecret:
    lifetimes = Lifetimes(authority=90 * DAY, server=server * DAY)
    return OwnSecret(cluster, "ns", "kvcp", "kvcp", NAMES, lifetimes, clock)  # type: ignore[arg-type]


@pytest.fixture
def serve(tmp_path_factory: pytest.TempPathFactory) -> Serve:
    return lambda source: WebhookTls(source, tmp_path_factory.mktemp("tls"))


def trusted(tls: WebhookTls, bundle: str | None) -> bool:
    """Whether a client that knows just this bundle would talk to the server."""
    client = ssl.create_default_context(cadata=base64.b64decode(bundle or "").decode())
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    a = client.wrap_bio(ours, theirs, server_hostname=NAMES[0])
    b = tls.context.wrap_bio(theirs, ours, server_side=True)
    for _ in range(4):
        for side in (a, b):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return True


async def test_an_empty_secret_is_filled_and_the_api_server_told_before_anything_is_served(serve: Serve) -> None:
    cluster = FakeCluster()
    tls = serve(source(cluster, Clock()))
    await tls.once()
    assert cluster.writes == ["Secret", "MutatingWebhookConfiguration"]
    assert trusted(tls, cluster.bundle)
    assert tls.certificate_file.exists()
    await tls.once()
    assert len(cluster.writes) == 2, "nothing is written while all is well"


async def test_two_replicas_serve_one_certificate_whoever_was_first(serve: Serve) -> None:
    cluster, clock = FakeCluster(), Clock()
    one, other = serve(source(cluster, clock)), serve(source(cluster, clock))
    interrupted = []

    def rival() -> None:
        if not interrupted:
            interrupted.append(1)
            made = renewed({}, NAMES, clock(), Lifetimes())
            assert made is not None
            cluster.data = {name: base64.b64encode(content).decode() for name, content in made.items()}
            cluster.version += 1

    cluster.before_write = rival
    await one.once()
    await other.once()
    assert cluster.writes == ["MutatingWebhookConfiguration"], "the rival's certificate is taken"
    assert trusted(one, cluster.bundle)
    assert trusted(other, cluster.bundle)


async def test_over_years_every_replica_is_trusted_at_every_moment(serve: Serve) -> None:
    cluster, clock = FakeCluster(), Clock()
    clock.now -= 400 * DAY  # the TLS library looks at the real clock: only the last certificates must be valid by it
    one, other = serve(source(cluster, clock)), serve(source(cluster, clock))
    certificates = set()
    for day in range(400):
        clock.now += DAY
        for tls in (one, other) if day % 2 else (other, one):
            await tls.once()
        certificates.add(cluster.data[CERTIFICATE])
    assert len(certificates) > 10
    assert trusted(one, cluster.bundle)
    assert trusted(other, cluster.bundle)


async def test_a_new_authority_is_served_only_after_the_api_server_was_told(serve: Serve) -> None:
    cluster, clock = FakeCluster(), Clock()
    clock.now -= 61 * DAY
    tls = serve(source(cluster, clock, server=80))
    await tls.once()
    before = cluster.bundle
    clock.now += 61 * DAY
    await tls.once()
    assert cluster.bundle != before
    assert trusted(tls, before), "the former certificate is served until the API server had time to learn"
    await tls.once()
    assert not trusted(tls, before)
    assert trusted(tls, cluster.bundle)


async def test_a_bundle_that_somebody_took_away_is_put_back(serve: Serve) -> None:
    cluster = FakeCluster()
    tls = serve(source(cluster, Clock()))
    await tls.once()
    cluster.bundle = None
    await tls.once()
    assert trusted(tls, cluster.bundle)


@pytest.mark.parametrize("kind", ["Secret", "MutatingWebhookConfiguration"])
async def test_what_the_chart_did_not_make_is_named(serve: Serve, kind: str) -> None:
    cluster = FakeCluster()
    cluster.missing.add(kind)
    with pytest.raises(CertificateError, match=f"there is no {kind} .*kvcp; the chart makes it"):
        await serve(source(cluster, Clock())).once()


async def test_files_that_cert_manager_renews_are_taken_without_a_restart(serve: Serve, tmp_path: Path) -> None:
    tls = serve(Files(tmp_path))
    with pytest.raises(CertificateError, match="cannot read the certificate"):
        await tls.once()
    bundles = []
    for _ in range(2):
        made = renewed({}, NAMES, datetime.now(UTC), Lifetimes())
        assert made is not None
        for name in (CERTIFICATE, KEY):
            (tmp_path / name).write_bytes(made[name])
        await tls.once()
        bundles.append(base64.b64encode(made[BUNDLE]).decode())
        assert trusted(tls, bundles[-1])
    assert not trusted(tls, bundles[0])


async def test_a_certificate_that_does_not_fit_its_key_is_told_and_the_former_stays(
    serve: Serve, tmp_path: Path
) -> None:
    one, other = (renewed({}, NAMES, datetime.now(UTC), Lifetimes()) for _ in range(2))
    assert one is not None
    assert other is not None
    tls = serve(Files(tmp_path))
    for name in (CERTIFICATE, KEY):
        (tmp_path / name).write_bytes(one[name])
    await tls.once()
    (tmp_path / CERTIFICATE).write_bytes(other[CERTIFICATE])  # the key of it is still to come
    with pytest.raises(CertificateError, match="cannot be used"):
        await tls.once()
    assert trusted(tls, base64.b64encode(one[BUNDLE]).decode())
