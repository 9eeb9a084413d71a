"""Versions and what they can do, as data."""
