"""TLS of the webhook: certificates out of a Secret that all replicas share, or out of files that cert-manager renews.

Any replica makes what is missing and renews what ends: the Secret's resourceVersion decides who was first. The API
server is told of the authority before a certificate of it is served, and the running server takes a renewed certificate
for new connections without being restarted.
"""

import asyncio
import base64
import logging
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from kvcachepool.certificates import BUNDLE, CERTIFICATE, KEY, Lifetimes, renewed
from kvcachepool.cluster import ApiError, Cluster

logger = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 5.0
_CONFLICTS: Final = 5

Material = Mapping[str, bytes]


class CertificateError(Exception):
    """There is no certificate (yet); the message says what was found."""


class Source(Protocol):
    """Where the certificate comes from."""

    async def current(self, *, serving: bool) -> Material | None:
        """Certificate and key to serve now; None to go on as before. Raises CertificateError or ApiError."""
        ...


@dataclass(frozen=True)
class Files:
    """A mounted Secret, kept by cert-manager, which also tells the API server of the authority."""

    folder: Path

    async def current(self, *, serving: bool) -> Material | None:  # noqa: ARG002
        """The files as they are."""
        try:
            return {name: (self.folder / name).read_bytes() for name in (CERTIFICATE, KEY)}
        except OSError as error:
            raise CertificateError(f"cannot read the certificate in {self.folder}: {error}") from error


@dataclass(frozen=True)
class OwnSecret:
    """A Secret and a webhook configuration that the chart has made and the operator fills."""

    cluster: Cluster
    namespace: str
    secret: str
    configuration: str
    names: tuple[str, ...]
    """DNS names of the Service."""
    lifetimes: Lifetimes = field(default_factory=Lifetimes)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    async def current(self, *, serving: bool) -> Material | None:
        """What the Secret holds, renewed where needed."""
        material = await self._material()
        told = await self._tell(base64.b64encode(material[BUNDLE]).decode())
        # Whoever serves already has a certificate that the API server knows; the next round takes the new one.
        return None if told and serving else material

    async def _material(self) -> Material:
        for _ in range(_CONFLICTS):
            stored = await self.cluster.get("Secret", self.namespace, self.secret)
            if stored is None:
                raise CertificateError(f"there is no Secret {self.namespace}/{self.secret}; the chart makes it")
            found = {name: base64.b64decode(text) for name, text in (stored.get("data") or {}).items()}
            fresh = renewed(found, self.names, self.now(), self.lifetimes)
            if fresh is None:
                return found
            patch = {
                "metadata": {"resourceVersion": stored["metadata"]["resourceVersion"]},
                "data": {name: base64.b64encode(content).decode() for name, content in fresh.items()},
            }
            try:
                await self.cluster.merge("Secret", self.namespace, self.secret, patch)
            except ApiError as error:
                if error.status != 409:
                    raise
                continue  # another replica was first: take what it has made
            logger.info("made a certificate for %s", self.names[0])
            return fresh
        raise CertificateError(f"Secret {self.namespace}/{self.secret} is changed all the time by somebody else")

    async def _tell(self, bundle: str) -> bool:
        """Whether the API server had to be told of the authority."""
        found = await self.cluster.get("MutatingWebhookConfiguration", None, self.configuration)
        if found is None:
            raise CertificateError(f"there is no MutatingWebhookConfiguration {self.configuration}; the chart makes it")
        stale = [hook["name"] for hook in found["webhooks"] if hook["clientConfig"].get("caBundle") != bundle]
        if stale:
            patch = {"webhooks": [{"name": name, "clientConfig": {"caBundle": bundle}} for name in stale]}
            await self.cluster.merge("MutatingWebhookConfiguration", None, self.configuration, patch, strategic=True)
        return bool(stale)


class WebhookTls:
    """The server's TLS context, kept current.

    `folder` keeps the first certificate in files, for a server that wants files; they are not rewritten.
    """

    def __init__(self, source: Source, folder: Path, *, interval: float = INTERVAL_SECONDS) -> None:
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._source = source
        self._interval = interval
        self._served: Material | None = None
        self.certificate_file = folder / CERTIFICATE
        self.key_file = folder / KEY

    async def first(self, waiting: Callable[[str], None]) -> None:
        """Waits for a certificate; tells `waiting` why there is none."""
        while True:
            try:
                await self.once()
            except (ApiError, CertificateError) as error:
                waiting(f"no certificate for the webhook: {error}")
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    async def forever(self) -> None:
        """Takes renewed certificates until it is cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self.once()
            except (ApiError, CertificateError) as error:
                logger.warning("the webhook's certificate could not be looked after: %s", error)
            except Exception:
                logger.exception("the webhook's certificate could not be looked after")

    async def once(self) -> None:
        """One look. Raises ApiError or CertificateError."""
        material = await self._source.current(serving=self._served is not None)
        if material is None or material == self._served:
            return
        try:
            self._load(material)
        except (ssl.SSLError, OSError, KeyError) as error:
            raise CertificateError(f"the certificate cannot be used: {error}") from error
        self._served = material

    def _load(self, material: Material) -> None:
        with tempfile.TemporaryDirectory(prefix="kvcp-tls-") as folder:
            certificate, key = Path(folder) / CERTIFICATE, Path(folder) / KEY
            certificate.write_bytes(material[CERTIFICATE])
            key.write_bytes(material[KEY])
            # In another context first: loading a pair that does not fit leaves a context without any.
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
            self.context.load_cert_chain(certificate, key)
            if not self.certificate_file.exists():
                self.certificate_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.certificate_file.write_bytes(material[CERTIFICATE])
                self.key_file.write_bytes(material[KEY])
