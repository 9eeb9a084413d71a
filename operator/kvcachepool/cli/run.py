"""`kvcachepool run`: the operator itself. All else is set by `KVCP_*` variables, see settings.py."""

import asyncio
import logging

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
    try:
        asyncio.run(service.serve(settings))
    except Exception as error:
        logging.getLogger(__name__).exception("the operator ends; it is expected to be started anew")
        raise SystemExit(1) from error
