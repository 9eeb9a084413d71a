"""Completing a user's own engine pod, so that it joins the pool it names. Pure: objects in, objects out."""

from kvcachepool.inject.complete import complete
from kvcachepool.inject.refusal import InjectionRefusedError

__all__ = ["InjectionRefusedError", "complete"]
