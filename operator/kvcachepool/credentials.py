"""What looks like a credential: hidden in messages, refused where it stands in a pool for everybody to read.

Errs towards hiding. A name counts by its end, so that `HF_TOKEN_PATH`, which names a file, does not.
"""

import re
from typing import Final

_TOKEN: Final = re.compile(r"\b(?:hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[abp]-|AKIA)[A-Za-z0-9_-]{8,}")
_JWT: Final = re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?")
_IN_URL: Final = re.compile(r"(://[^\s/:@]{0,100}:)[^\s/@]{1,200}@")
_HIDDEN: Final = (
    (
        re.compile(r"(?i)\b(authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?)(?:(?:bearer|basic|token)\s{1,3})?[^\s\"',;]+"),
        r"\1***",
    ),
    (re.compile(r"(?i)\b((?:bearer|basic)\s{1,3})[A-Za-z0-9._~+/=-]{8,}"), r"\1***"),
    (
        re.compile(
            r"(?i)([\w-]{0,40}(?:token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key|credential)s?[\"']?\s{0,3}[=:]\s{0,3}[\"']?)"
            r"[^\s\"',;&]{4,}"
        ),
        r"\1***",
    ),
    (_IN_URL, r"\1***@"),
    (_TOKEN, "***"),
    (_JWT, "***"),
)

NAME_PATTERN: Final = (
    "(?i)(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|API_?KEY|ACCESS_?KEY|SECRET_?KEY|PRIVATE_?KEY|CREDENTIALS?)$"
)
"""Names of variables that hold a secret; a regular expression of Python and of RE2 alike."""
HARMLESS: Final = ("", "0", "1", "true", "false")
"""Values that are none, whatever the name."""
_NAME: Final = re.compile(NAME_PATTERN)


def redact(text: str) -> str:
    """Everything that looks like a credential replaced by `***`."""
    for pattern, replacement in _HIDDEN:
        text = pattern.sub(replacement, text)
    return text


def secret_name(name: str) -> bool:
    """Whether a variable of that name holds a secret."""
    return _NAME.search(name) is not None


def holds_credential(text: str) -> bool:
    """Whether there is a token of a known form in it, or an address with a password."""
    return any(pattern.search(text) for pattern in (_TOKEN, _JWT, _IN_URL))
