"""Pure builders: one child kind, or one part of a pod, a file."""
