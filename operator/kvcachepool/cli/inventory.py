"""`kvcachepool inventory`: what the nodes could run, and which pools they fit. Reads only."""

import asyncio
import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kvcachepool.cluster import Cluster
    from kvcachepool.compat.tables import Tables
    from kvcachepool.inventory import Row


@click.command()
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("-n", "--namespace", help="Only pools of this namespace; all when left out.")
@click.option("--no-pools", is_flag=True, help="Do not read pools: only nodes need to be readable then.")
def inventory(output: str, namespace: str | None, no_pools: bool) -> None:
    """Print GPUs, drivers, CUDA, RDMA and memory of every node, and for each pool whether the node fits or why not.

    Uses the kubeconfig, or the pod's service account in a cluster. The cluster's own compatibility rows count when they
    can be read and have no fault, as for the operator (KVCP_LEASE_NAMESPACE names its namespace). Exit code 1 when the
    cluster cannot be read.
    """
    from kvcachepool.cluster import ApiError

    try:
        rows = asyncio.run(_rows(namespace, pools=not no_pools))
    except (ApiError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if output == "json":
        click.echo(json.dumps([row.dump() for row in rows], indent=2))
    else:
        _print(rows)


async def _rows(namespace: str | None, *, pools: bool) -> "list[Row]":
    from kvcachepool import constants
    from kvcachepool.cluster import ApiError, Cluster, connect
    from kvcachepool.inventory import inventory as rows_of
    from kvcachepool.observe.nodes import node_facts

    try:
        client = await connect()
    except Exception as error:  # the client raises its own kinds for a kubeconfig that is not there or not right
        raise ApiError(0, f"no cluster to connect to: {error}") from error
    try:
        cluster = Cluster(client, write_seconds_left=lambda: 0.0)
        nodes, _ = await cluster.list("Node", None)
        found = (await cluster.list(constants.KIND, namespace))[0] if pools else []
        return rows_of([node_facts(raw) for raw in nodes], found, await _tables(cluster))
    finally:
        await client.close()  # type: ignore[no-untyped-call]


async def _tables(cluster: "Cluster") -> "Tables":
    """With the cluster's own rows, where the operator would take them. Raises ApiError for trouble that passes."""
    from kvcachepool import constants
    from kvcachepool.cluster import ApiError
    from kvcachepool.settings import Settings
    from kvcachepool.surroundings import NOT_ALLOWED, read_tables

    home, own, ignored = Settings.from_env().lease_namespace, None, ""
    try:
        own = await cluster.get("ConfigMap", home, constants.COMPATIBILITY_CONFIG_MAP) if home else None
    except ApiError as error:
        if error.status not in NOT_ALLOWED:
            raise
        ignored = str(error)
    tables, fault = read_tables((own or {}).get("data") or {})
    if ignored or fault:
        name = f"{home}/{constants.COMPATIBILITY_CONFIG_MAP}"
        click.echo(f"Warning: ConfigMap {name} is ignored, built-in rows only: {ignored or fault}", err=True)
    return tables


def _print(rows: "list[Row]") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    pools = sorted({name for row in rows for name in row.pools})
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("NODE", "STATE", "GPU", "DRIVER", "CUDA", "OTHER DEVICES", "MEMORY", "TAINTS", *pools):
        table.add_column(heading, overflow="fold")
    for row in rows:
        devices = ", ".join(f"{count} × {name}" for name, count in row.gpus.items())
        table.add_row(
            row.node,
            row.state,
            "\n".join(part for part in (row.gpu, devices) if part) or "none",
            row.driver or "unknown",
            row.cuda or "unknown",
            "\n".join(f"{count} × {name}" for name, count in row.rdma.items()),
            "\n".join([row.memory, *(f"{size} of {name}" for name, size in row.hugepages.items())]),
            "\n".join(row.taints),
            *(row.pools[name] for name in pools),
        )
    Console(width=None if Console().is_terminal else 220).print(table)
