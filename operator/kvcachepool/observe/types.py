"""Facts live in `kvcachepool.facts`."""

from kvcachepool.facts import *  # noqa: F403
