"""Bridges to other people's programs, each a module that imports its program when it is itself imported."""
