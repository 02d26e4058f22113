"""The commands for data sets and tokens.  Each module has `register(app)`, which adds its command to the command line."""

COMMANDS = ("convert", "check", "verify", "tokenize", "show")
