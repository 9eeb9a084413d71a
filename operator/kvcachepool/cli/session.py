"""What commands that work in a pool share: a connection that ends well, and prompts that nobody sent before."""

import asyncio
import random
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from kvcachepool.cluster import Cluster
    from kvcachepool.observe.http import HttpReader

Result = TypeVar("Result")


@asynccontextmanager
async def session() -> AsyncIterator[tuple["Cluster", "HttpReader"]]:
    """The API server, and a client for engines and master. SIGTERM cancels the task, so that a Job that is deleted ends
    what it has begun."""
    from kvcachepool.cluster import Cluster, connect
    from kvcachepool.observe.http import HttpReader

    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    client = await connect()
    try:
        async with HttpReader() as http:
            yield Cluster(client), http
    finally:
        await client.close()  # type: ignore[no-untyped-call]


def in_pool(work: Coroutine[Any, Any, Result]) -> Result:
    """Its result. What cannot be done in the pool is an error of the command, without a traceback."""
    from kvcachepool.cluster import ApiError
    from kvcachepool.lookup import CannotRunError

    try:
        return asyncio.run(work)
    except (ApiError, CannotRunError) as error:
        raise click.ClickException(str(error)) from error


def unpredictable() -> random.Random:
    """Whatever it draws was drawn by nobody before."""
    return random.Random(secrets.randbits(128))  # noqa: S311


def with_options(
    options: Sequence[Callable[[Callable[..., None]], Callable[..., None]]],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command several options at once, in this order."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def print_manifests(manifests: Iterable[Any]) -> None:
    """As YAML documents."""
    import yaml

    click.echo("---\n".join(yaml.safe_dump(manifest, sort_keys=False) for manifest in manifests), nl=False)
