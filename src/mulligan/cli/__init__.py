"""The command line: a face. It parses, calls, and shows the answer."""
