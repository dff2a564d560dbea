"""Programs that search for broken promises for hours: what `make test` does briefly, they do at length."""
