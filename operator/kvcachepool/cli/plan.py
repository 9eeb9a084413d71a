"""`kvcachepool plan`: what would be applied for a manifest."""

import sys
from pathlib import Path

import click

from kvcachepool.settings import Settings


@click.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of pools that name none.")
def plan(file: Path, namespace: str) -> None:
    """Print the objects that the operator would apply for the pools in FILE (`-`: standard input).

    No cluster is asked. A pool that the operator would refuse ends with its findings and exit code 1.
    """
    from kvcachepool.preview import PreviewError, preview

    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{file}: {error}") from error
    try:
        for document in preview(text, Settings.from_env(), namespace=namespace):
            click.echo(f"---\n{document}", nl=False)
    except ValueError as error:
        kind = "" if isinstance(error, PreviewError) else "settings: "
        raise click.ClickException(f"{kind}{error}") from error
