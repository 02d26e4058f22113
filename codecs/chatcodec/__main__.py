"""`python -m chatcodec`: the command line without its entry point."""

from .cli import main

main()
