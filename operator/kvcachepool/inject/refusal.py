"""Why a pod cannot be completed."""


class InjectionRefusedError(ValueError):
    """The message says what was found, what is expected and what to do."""
