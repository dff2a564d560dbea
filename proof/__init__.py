"""Programs that look for broken promises for hours: what `make test` does shortly, they do at length."""
