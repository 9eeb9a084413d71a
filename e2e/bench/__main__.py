"""Command line: `python -m e2e.bench [--pools 1 100 500] [--no-ready] [--scale 1000 20000]`."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from e2e.bench import passes, ready, scale


def main() -> None:
    """Measure and print; nothing is judged."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench", description=__doc__)
    parser.add_argument("--pools", type=int, nargs="*", default=[1, 100, 500])
    parser.add_argument(
        "--scale", type=int, nargs=2, metavar=("POOLS", "STRANGERS"), help="only the large installation"
    )
    parser.add_argument("--no-ready", action="store_true", help="leave out the run with real engines")
    options = parser.parse_args()
    console = Console(width=160)
    if options.scale:
        pools, strangers = options.scale
        for line in scale.measure(pools, strangers, console.log).lines():
            console.print(line)
        return
    table = Table(title="Pools on a real API server; reference: kubectl apply --server-side of the same objects")
    for column in ("pools", "to converge s", "reference s", "ratio", "passes", "passes/s", "pass p50 s ≤",
                   "pass p95 s ≤", "API calls a pass", "calls in 40 s idle", "RSS MiB"):  # fmt: skip
        table.add_column(column, justify="right")
    for count in options.pools:
        row = passes.measure(count)
        table.add_row(
            str(row.pools), f"{row.converge:.1f}", f"{row.reference:.1f}", f"{row.converge / row.reference:.2f}",
            str(row.passes), f"{row.passes / row.converge:.0f}", f"{row.pass_p50:g}", f"{row.pass_p95:g}",
            f"{row.calls_per_pass:.1f}", f"{row.idle_calls:.0f}", f"{row.rss_mib:.0f}",
        )  # fmt: skip
    console.print(table)
    if not options.no_ready:
        with_operator, plain = ready.measure()
        console.print(
            f"Time to Ready of one engine: {with_operator:.1f} s with the operator, {plain:.1f} s from plain "
            f"manifests, ratio {with_operator / plain:.2f}"
        )


main()
