"""Judgement: conditions, figures and events of a pool, as pure functions of what was planned and observed."""

from kvcachepool.status.events import Event, transitions
from kvcachepool.status.make import invalid_status, make_status

__all__ = ["Event", "invalid_status", "make_status", "transitions"]
