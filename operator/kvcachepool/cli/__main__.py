"""`python -m kvcachepool.cli`."""

from kvcachepool.cli import main

main()
