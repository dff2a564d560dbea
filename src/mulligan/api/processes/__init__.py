"""The processes and threads of a server."""
