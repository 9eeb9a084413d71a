"""The command line, one file per command."""

import click

from kvcachepool import __version__
from kvcachepool.cli.drill import drill
from kvcachepool.cli.inventory import inventory
from kvcachepool.cli.negative import negative
from kvcachepool.cli.plan import plan
from kvcachepool.cli.run import run


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kvcachepool")
def main() -> None:
    """Runs KV caches shared by vLLM replicas, proves and watches them."""


main.add_command(drill)
main.add_command(inventory)
main.add_command(negative)
main.add_command(plan)
main.add_command(run)
