"""`kvcachepool run`: the operator itself. All else is set by `KVCP_*` variables, see settings.py."""

import asyncio
import logging
import os
import sys
from typing import NoReturn

import click

from kvcachepool.settings import Settings


@click.command()
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    envvar="KVCP_LOG_LEVEL",
    show_envvar=True,
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    envvar="KVCP_LOG_FORMAT",
    show_envvar=True,
)
def run(log_level: str, log_format: str) -> None:
    """Run the operator until SIGTERM."""
    from kvcachepool import logs, service

    logs.setup(log_level, log_format)
    try:
        settings = Settings.from_env()
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    if settings.lease_namespace and not settings.identity:
        raise click.ClickException("KVCP_IDENTITY: found none, expected this replica's name (the pod's name)")
    code = 0
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(service.serve(settings))
    except Exception:
        logging.getLogger(__name__).exception("the operator ends; it is expected to be started anew")
        code = 1
    leave(loop, code)


def leave(loop: asyncio.AbstractEventLoop, code: int, *, seconds: float = 3.0) -> NoReturn:
    """Ends the process. `asyncio.run` would wait for ever for a task that does not take its cancellation."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        _, stuck = loop.run_until_complete(asyncio.wait(left, timeout=seconds))
        if stuck:
            names = ", ".join(sorted(task.get_name() for task in stuck))
            logging.getLogger(__name__).warning("left behind: %s", names)
            logging.shutdown()
            sys.stdout.flush()
            os._exit(code)
    loop.close()
    sys.exit(code)
