"""End-to-end tests, the demo, and the cluster they run on."""
