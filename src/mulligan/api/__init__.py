"""The server: REST, live streams, remote workers. Needs the extra `server`."""
