"""Container images of the project and what builds them (`python -m images.build`)."""
