"""Checks of a pool's spec beyond the API's own: each yields findings, none reads the cluster."""
