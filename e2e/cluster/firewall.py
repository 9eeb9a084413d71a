"""Packet filter rules: which of them are the cluster's, and how to take exactly those away."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterable
from itertools import pairwise

# kube-proxy's, the kubelet's and kube-router's, those of the CNI plugins bridge and portmap, and our own.
OWN_CHAIN = "KVCP-FORWARD"
_PREFIXES = ("KUBE-", "CNI-", "KVCP-")
_SETS = ("KUBE-SRC-", "KUBE-DST-", "inet6:KUBE-SRC-", "inet6:KUBE-DST-")
"""Addresses that kube-router's rules name."""
_ENFORCING = "KUBE-ROUTER-FORWARD"


def removal(saved: str) -> str:
    """Turn the output of `iptables-save` into input for `iptables-restore --noflush` that removes our chains.

    Rules and chains of anybody else are not mentioned, so a change that they
    make meanwhile is not lost, as it would be by restoring a whole table.
    """
    tables: list[str] = []
    deletions: list[str] = []
    chains: list[str] = []
    table = ""
    for line in saved.splitlines():
        if line.startswith("*"):
            table, deletions, chains = line, [], []
        elif line.startswith(":") and _ours(line[1:].split()[0]):
            chains.append(line[1:].split()[0])
        elif line.startswith("-A ") and not _ours(line.split()[1]):
            if _ours(_target(line)):
                deletions.append("-D" + line[2:])
        elif line == "COMMIT" and (deletions or chains):
            flushes = [f"-F {chain}" for chain in chains]
            tables += [table, *deletions, *flushes, *(f"-X {chain}" for chain in chains), "COMMIT"]
    return "\n".join(tables) + "\n" if tables else ""


def clear() -> list[str]:
    """Remove our chains for IPv4 and IPv6; returns what could not be removed."""
    problems = []
    for program in ("iptables", "ip6tables"):
        saved = subprocess.run([f"{program}-save"], capture_output=True, check=False, text=True).stdout
        commands = removal(saved)
        if commands:
            outcome = subprocess.run(
                [f"{program}-restore", "--noflush", "--wait", "10"],
                input=commands,
                capture_output=True,
                check=False,
                text=True,
            )
            if outcome.returncode:
                problems.append(f"{program}: {outcome.stderr.strip()}")
    for name in _sets():  # only after the rules: a set in use cannot be destroyed
        outcome = subprocess.run(["ipset", "destroy", name], capture_output=True, check=False, text=True)
        if outcome.returncode:
            problems.append(f"ipset {name}: {outcome.stderr.strip()}")
    return problems


def enforces() -> bool:
    """Whether packets between pods pass the rules for NetworkPolicies before the one that lets them all through."""
    rules = subprocess.run(["iptables", "--wait", "10", "-S", "FORWARD"], capture_output=True, check=False, text=True)
    return enforced(rules.stdout)


def enforced(rules: str) -> bool:
    """The same, of the rules of FORWARD as iptables lists them."""
    jumps = [_target(line) for line in rules.splitlines() if line.startswith("-A ")]
    return _ENFORCING in jumps and OWN_CHAIN not in jumps[: jumps.index(_ENFORCING)]


def _sets() -> list[str]:
    listed = subprocess.run(["ipset", "list", "-name"], capture_output=True, check=False, text=True).stdout
    return [name for name in listed.split() if name.startswith(_SETS)]


def leftovers() -> list[str]:
    """Name our chains that exist."""
    found = []
    for program in ("iptables", "ip6tables"):
        saved = subprocess.run([f"{program}-save"], capture_output=True, check=False, text=True).stdout
        found += [line for line in saved.splitlines() if line.startswith(":") and _ours(line[1:].split()[0])]
    return found + [f"set {name}" for name in _sets()]


def allow_forwarding(bridge: str) -> None:
    """Let pods through where the host's policy drops forwarded packets, as another container engine sets it."""
    for direction in ("-i", "-o"):
        rule = [OWN_CHAIN, direction, bridge, "-j", "ACCEPT"]
        _iptables(["-N", OWN_CHAIN], check=False)
        if not _iptables(["-C", *rule], check=False):
            _iptables(["-A", *rule])
    if not _iptables(["-C", "FORWARD", "-j", OWN_CHAIN], check=False):
        _iptables(["-I", "FORWARD", "-j", OWN_CHAIN])


def _iptables(arguments: Iterable[str], *, check: bool = True) -> bool:
    outcome = subprocess.run(["iptables", "--wait", "10", *arguments], capture_output=True, check=check)
    return outcome.returncode == 0


def _target(rule: str) -> str:
    words = shlex.split(rule)  # a comment, in quotes, may look like anything
    return next((after for word, after in pairwise(words) if word in {"-j", "-g"}), "")


def _ours(chain: str) -> bool:
    return chain.startswith(_PREFIXES)
