"""The dashboard: pages for people, rendered by the server. Every button on them calls the HTTP interface."""
