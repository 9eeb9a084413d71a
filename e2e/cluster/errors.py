"""The exceptions a user of the cluster can meet.

ClusterError
 ├── MissingTool      something must be installed or built first
 ├── StartFailed      a component did not become ready; carries the end of its log
 └── Refused          doing it would touch something that is not ours
"""

from __future__ import annotations


class ClusterError(Exception):
    """Base of all; its text is meant for the user as it is."""


class MissingTool(ClusterError):
    """A program is absent."""


class StartFailed(ClusterError):
    """A component did not become ready."""


class Refused(ClusterError):
    """The request is unsafe here."""
