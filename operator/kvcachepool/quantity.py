"""Kubernetes quantities as whole numbers of bytes.

Source: the serialization rules of `k8s.io/apimachinery/pkg/api/resource.Quantity`.
"""

import re
from decimal import ROUND_UP, Decimal

_SUFFIX: dict[str, Decimal] = {
    "": Decimal(1),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}
PATTERN = r"^[0-9]+(\.[0-9]+)?(k|Ki|M|Mi|G|Gi|T|Ti|P|Pi|E|Ei|[eE][+]?[0-9]{1,2})?$"
"""What the CRD accepts for a size: non-negative, no milli-bytes."""
_LONGEST = 256
"""Characters of a quantity; nobody writes so many, and very long numbers are slow to convert."""
_QUANTITY = re.compile(r"^([0-9]+(?:\.[0-9]+)?)(k|Ki|M|Mi|G|Gi|T|Ti|P|Pi|E|Ei)?(?:[eE]\+?([0-9]{1,2}))?$")


def parse_bytes(value: str | int) -> int:
    """The number of bytes in a quantity (`80Gi`, `8.5Gi`, `1e9`, `85899345920`); a fraction is rounded up.

    Raises ValueError that says what was found and what is expected.
    """
    text = str(value).strip()
    match = _QUANTITY.match(text) if len(text) <= _LONGEST else None
    if match is None or (match[2] and match[3]):
        raise ValueError(f"{text[:64]!r} is not a size: expected a non-negative quantity such as 80Gi, 500M or 1e9")
    number = Decimal(match[1]) * _SUFFIX[match[2] or ""] * Decimal(10) ** int(match[3] or 0)
    whole = int(number)
    return whole if whole == number else whole + 1


_AMOUNT = re.compile(r"^([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?$")
_MOST = Decimal(2**63 - 1)
"""What the API machinery caps amounts at."""
_LEAST = Decimal(10) ** -9
"""What it counts in: less is rounded away from zero, so that who asks for something gets something."""
_SMALL: dict[str, Decimal] = {"n": Decimal(10) ** -9, "u": Decimal(10) ** -6, "m": Decimal(10) ** -3}


def parse_amount(value: str | int) -> Decimal:
    """Any quantity of a resource as a plain number: `500m` of cpu, `2` devices, `1Gi` of memory; capped and rounded as
    Kubernetes does. Raises ValueError."""
    text = str(value).strip()
    match = _AMOUNT.match(text) if len(text) <= _LONGEST else None
    if match is None:
        raise ValueError(f"{text[:64]!r} is not a quantity such as 500m, 2 or 1Gi")
    number, suffix = Decimal(match[1]), match[2] or ""
    if suffix[:1] in {"e", "E"} and suffix[1:] and suffix != "Ei":
        factor = Decimal(10) ** int(suffix[1:])
    else:
        factor = (_SMALL | _SUFFIX)[suffix]
    amount = max(-_MOST, min(_MOST, number * factor))
    rounded = amount.quantize(_LEAST, ROUND_UP)
    return amount if rounded == amount else rounded


def format_bytes(value: int) -> str:
    """The shortest exact binary quantity (`1Gi`, `1536Mi`, else plain bytes)."""
    for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        unit = int(_SUFFIX[suffix])
        if value >= unit and value % unit == 0:
            return f"{value // unit}{suffix}"
    return str(value)


def human_bytes(value: float) -> str:
    """A rounded size for people (`79.5 GiB`); never fed back into a machine."""
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= unit:
            return f"{value / unit:.1f} {name}"
    return f"{value:.0f} B"


def align_up(value: int, alignment: int) -> int:
    """The smallest multiple of `alignment` that is at least `value`."""
    return -(-value // alignment) * alignment
