"""`kvcachepool drill`: breaks parts of a pool on purpose, and reports what requests noticed."""

from collections.abc import Sequence
from typing import Any

import click

from kvcachepool.cli.session import in_pool, print_manifests, session, unpredictable, with_options

_OPTIONS = (
    click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the pool."),
    click.option("--drill", "wanted", multiple=True, metavar="NAME", help="Only this one; may be given several times."),
    click.option("--break-pool", "confirmed", default="", metavar="NAME",
                 help="The pool's name again: without it nothing is broken, and the cost is told."),
    click.option("--prompt-tokens", default=1024, show_default=True, type=click.IntRange(64, 131072)),
    click.option("--deadline", default=60.0, show_default=True, help="Seconds of one request; later is failed."),
    click.option("--recovery", default=300.0, show_default=True, help="Seconds after which reuse must work again."),
    click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True),
)  # fmt: skip
"""What `pool` and `job` have in common."""


_drill_options = with_options(_OPTIONS)


@click.group()
def drill() -> None:
    """Break parts of a running pool under a loop of requests, each answer compared with a recomputed one.

    A failure of the cache must mean recompute: no failed request on an engine that lives, no wrong answer. Drills cost
    warm cache; run them before users do, or in a pool of their own.
    """


@drill.command(name="list")
def list_drills() -> None:
    """List the drills and what they cost."""
    from kvcachepool.drill.faults import FAULTS

    for fault in FAULTS.values():
        click.echo(f"{fault.name:16} {fault.meaning}\n{'':16} costs {fault.cost}")


@drill.command()
@click.argument("name")
@_drill_options
def pool(name: str, namespace: str, **options: Any) -> None:
    """Run drills in the pool NAME. It reaches the engines' pods, so it runs inside the cluster (see `job`).

    Exit code 1: a request failed that should not, an answer was wrong, reuse did not come back, or nothing was run.
    """
    chosen = _chosen(name, options)
    _report(in_pool(_in_pool(namespace, name, chosen, options)), options["output"])


@drill.command()
@click.argument("name")
@_drill_options
@click.option("--image", required=True, help="Image of the operator.")
@click.option("--image-pull-policy", default="")
def job(name: str, namespace: str, image: str, image_pull_policy: str, **options: Any) -> None:
    """Print the manifests of a Job that runs drills in the pool NAME."""
    from kvcachepool.drill.job import manifests

    _chosen(name, options)
    print_manifests(manifests(name, namespace, image, _arguments(options), image_pull_policy))


def _chosen(name: str, options: dict[str, Any]) -> list[Any]:
    from kvcachepool.drill.faults import FAULTS
    from kvcachepool.drill.suite import announcement

    unknown = next((wanted for wanted in options["wanted"] if wanted not in FAULTS), None)
    if unknown is not None:
        raise click.UsageError(f"--drill: found {unknown!r}, expected one of {', '.join(FAULTS)}")
    chosen = [FAULTS[wanted] for wanted in options["wanted"]] or list(FAULTS.values())
    if options["confirmed"] != name:
        said = f"--break-pool: found {options['confirmed']!r}, expected the pool's name, {name}, to confirm"
        raise click.UsageError(f"{announcement(chosen)}\n{said}")
    return chosen


def _arguments(options: dict[str, Any]) -> list[str]:
    """The options as they were given, for the Job's command line."""
    words = [word for name in options["wanted"] for word in ("--drill", name)]
    words += ["--break-pool", options["confirmed"]]
    for name in ("prompt_tokens", "deadline", "recovery", "output"):
        words += [f"--{name.replace('_', '-')}", str(options[name])]
    return words


async def _in_pool(namespace: str, name: str, chosen: Sequence[Any], options: dict[str, Any]) -> list[Any]:
    from kvcachepool.drill.ground import Ground
    from kvcachepool.drill.loop import Asker, Pace
    from kvcachepool.drill.suite import Suite, Times
    from kvcachepool.lookup import find_pool

    async with session() as (cluster, http):
        found = await find_pool(cluster, namespace, name)
        model = found.spec.model.served_name or found.spec.model.id
        asker = Asker(http.session, model, unpredictable(), options["deadline"])
        suite = Suite(
            Ground(cluster, http, asker, found), options["prompt_tokens"], Pace(),
            Times(recovery=options["recovery"]), say=lambda text: click.echo(text, err=True),
        )  # fmt: skip
        return await suite.run(chosen)


def _report(rows: Sequence[Any], output: str) -> None:
    from kvcachepool.drill.report import document, passed, table

    click.echo(document(rows) if output == "json" else table(rows))
    if not passed(rows):
        raise SystemExit(1)
