"""The processes of a history, one after the other in one process: workers, servers and clients over one store."""
