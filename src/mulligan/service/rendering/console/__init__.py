"""A run on a terminal, for the command line and for programs: its progress while it is driven, and its summary."""
