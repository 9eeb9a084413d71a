"""Judgement: conditions, figures and events of a pool, as pure functions of what was planned and observed."""

from kvcachepool.status.events import Event, PodEvent, pod_transitions, transitions
from kvcachepool.status.make import failed_status, invalid_status, make_status

__all__ = ["Event", "PodEvent", "failed_status", "invalid_status", "make_status", "pod_transitions", "transitions"]
