"""The conditions reference of the documentation, as Markdown. Pure: `make generate` writes it."""

from kvcachepool.status.reason import ConditionInfo
from kvcachepool.status.reasons import CONDITIONS, NEEDED


def markdown() -> str:
    """The whole page."""
    needed = ", ".join(f"`{kind}`" for kind in NEEDED)
    parts = [
        "# Conditions",
        "",
        "<!-- Generated from operator/kvcachepool/status/reasons_*.py; edit there. -->",
        "",
        "All conditions are positive: `True` is good. All are present from the first pass, `Unknown` where nothing",
        "was measured. The reason alone tells the status; the message names what was seen and what to change.",
        f"`Ready` needs {needed}; the others tell whether the cache is proved, worth having and used.",
        "",
        "An event is posted when a condition flips, with the condition's reason. Reasons marked with * pass by",
        "themselves: their events are `Normal`.",
        "",
    ]
    for info in CONDITIONS:
        parts += _section(info)
    return "\n".join(parts)


def _section(info: ConditionInfo) -> list[str]:
    lines = [
        f"## {info.type}",
        "",
        f"`True`: {info.meaning}.",
        "",
        "| status | reason | meaning | what to do |",
        "|---|---|---|---|",
    ]
    for reason in info.reasons:
        mark = "*" if reason.passing else ""
        lines.append(f"| {reason.status} | `{reason.name}`{mark} | {_cell(reason.meaning)} | {_cell(reason.remedy)} |")
    if info.type == "Ready":
        lines.append(
            "| False, Unknown | reason of the condition that fails | The first needed condition that is False, or else "
            "the first that is Unknown. Its message follows its name. | See that condition. |"
        )
    return [*lines, ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
