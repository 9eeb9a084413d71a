"""The exceptions a user of the cluster can meet.

ClusterError
 ├── MissingToolError   something must be installed or built first
 ├── StartFailedError   a component did not become ready; carries the end of its log
 └── RefusedError       doing it would touch something that is not ours
"""

from __future__ import annotations


class ClusterError(Exception):
    """Base of all; its text is meant for the user as it is."""


class MissingToolError(ClusterError):
    """A program is absent."""


class StartFailedError(ClusterError):
    """A component did not become ready."""


class RefusedError(ClusterError):
    """The request is unsafe here."""
