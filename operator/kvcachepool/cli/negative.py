"""`kvcachepool negative`: proves that engines which differ in the cache schema do not read each other's blocks."""

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import click

from kvcachepool.cli.session import in_pool, print_manifests, session, unpredictable, with_options

_OPTIONS = (
    click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the pool."),
    click.option("--case", "wanted", multiple=True, metavar="NAME", help="Only this case; may be given several times."),
    click.option("--raw", is_flag=True, help="Also without the digest in front of the keys: what would have happened."),
    click.option("--other-weights", default="", help="For case weights: a model of the same shape (path, or hub id)."),
    click.option("--other-revision", default="", help="For case revision: another one that the hub has."),
    click.option("--prompt-tokens", default=1024, show_default=True, type=click.IntRange(64, 131072)),
    click.option("--deadline", default=60.0, show_default=True, help="Seconds of one request: a mismatch can hang."),
    click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True),
)
"""What `pool` and `job` have in common."""


_pool_options = with_options(_OPTIONS)


@click.group()
def negative() -> None:
    """Ask engines that differ in exactly one field of the cache schema for the same prompt.

    With the digest in front of every key the second one must reuse nothing and answer as without a cache.
    """


@negative.command()
def cases() -> None:
    """List the cases."""
    from kvcachepool.negative.cases import CASES

    for case in CASES:
        click.echo(f"{case.name:16} {case.field:16} {case.meaning}")


@negative.command()
@click.argument("name")
@_pool_options
def pool(name: str, namespace: str, **options: Any) -> None:
    """Run the suite in the pool NAME.

    For each case a pod with one changed field is made beside the pool's engines, one after the other; it needs a free
    device. Exit code 1: a difference was read as a hit, or nothing could be tried.
    """
    chosen = _chosen(options["wanted"])
    _report(in_pool(_in_pool(namespace, name, chosen, options)), options["output"])


@negative.command()
@click.argument("name")
@_pool_options
@click.option("--image", required=True, help="Image of the operator.")
@click.option("--image-pull-policy", default="")
def job(name: str, namespace: str, image: str, image_pull_policy: str, **options: Any) -> None:
    """Print the manifests of a Job that runs the suite in the pool NAME."""
    from kvcachepool.negative.job import manifests

    _chosen(options["wanted"])
    print_manifests(manifests(name, namespace, image, _arguments(options), image_pull_policy))


@negative.command()
@click.option("--writer", required=True, metavar="URL", help="The engine that computes.")
@click.option("--reader", required=True, metavar="URL", help="The engine that differs.")
@click.option("--model", required=True, help="Name of the model in requests.")
@click.option("--field", default="unnamed", show_default=True, help="What they differ in, for the report.")
@click.option("--changed-to", default="-", help="The reader's value, for the report.")
@click.option("--raw", is_flag=True, help="The engines have no digest in front of their keys.")
@click.option("--block-size", default=64, show_default=True, help="The larger one of both.")
@click.option("--prompt-tokens", default=1024, show_default=True, type=click.IntRange(64, 131072))
@click.option("--deadline", default=60.0, show_default=True, help="Seconds of one request.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def engines(writer: str, reader: str, **options: Any) -> None:
    """Compare two engines that run, wherever they do."""
    _report([asyncio.run(_two(_engine(writer, "--writer"), _engine(reader, "--reader"), options))], options["output"])


def _chosen(wanted: Sequence[str]) -> list[Any]:
    from kvcachepool.negative.cases import BY_NAME, CASES

    unknown = next((name for name in wanted if name not in BY_NAME), None)
    if unknown is not None:
        raise click.UsageError(f"--case: found {unknown!r}, expected one of {', '.join(BY_NAME)}")
    return [BY_NAME[name] for name in wanted] or list(CASES)


def _arguments(options: dict[str, Any]) -> list[str]:
    """The options as they were given, for the Job's command line."""
    words = [word for name in options["wanted"] for word in ("--case", name)]
    words += ["--raw"] if options["raw"] else []
    for name in ("other_weights", "other_revision", "prompt_tokens", "deadline", "output"):
        if options[name]:
            words += [f"--{name.replace('_', '-')}", str(options[name])]
    return words


def _engine(url: str, option: str) -> Any:
    from kvcachepool.negative.arms import Engine

    parts = urlsplit(url if "//" in url else f"//{url}")
    try:
        port = parts.port or 0
    except ValueError:
        port = -1
    if not parts.hostname or port < 0 or parts.scheme not in {"", "http"}:
        raise click.UsageError(f"{option}: found {url!r}, expected http://HOST:PORT")
    return Engine(parts.hostname, parts.hostname, port)


async def _in_pool(namespace: str, name: str, chosen: Sequence[Any], options: dict[str, Any]) -> list[Any]:
    from kvcachepool.negative.arms import Asker
    from kvcachepool.negative.cases import Options
    from kvcachepool.negative.suite import Suite, ground

    async with session() as (cluster, http):
        found = await ground(cluster, namespace, name)
        model, schema = found.pool.spec.model, found.pool.spec.schema_
        asker = Asker(
            http, model.served_name or model.id, options["prompt_tokens"], max(schema.block_size, 64),
            options["deadline"], unpredictable(),
        )  # fmt: skip
        weights = Options(options["other_weights"], options["other_revision"])
        suite = Suite(cluster, asker, found, weights, say=lambda text: click.echo(text, err=True))
        return await suite.run(chosen, raw=options["raw"])


async def _two(writer: Any, reader: Any, options: dict[str, Any]) -> Any:
    from kvcachepool.negative.arms import Asker, try_case
    from kvcachepool.negative.verdict import NOT_RUN, Row, judge
    from kvcachepool.observe.http import HttpReader
    from kvcachepool.probe.client import RequestError

    field, changed_to, prefix = options["field"], options["changed_to"], not options["raw"]
    async with HttpReader() as http:
        asker = Asker(
            http,
            options["model"],
            options["prompt_tokens"],
            options["block_size"],
            options["deadline"],
            unpredictable(),
        )
        try:
            return judge(field, field, changed_to, await try_case(asker, writer, reader), prefix=prefix)
        except RequestError as error:
            return Row(field, field, changed_to, prefix, NOT_RUN, detail=str(error))


def _report(rows: Sequence[Any], output: str) -> None:
    from kvcachepool.negative.report import document, passed, table

    click.echo(document(rows) if output == "json" else table(rows))
    raw_only = all(not row.prefix for row in rows)
    if not (raw_only or passed(rows)):
        raise SystemExit(1)
