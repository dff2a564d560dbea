"""How a run is, or was at one of its events: as lists, pages, graphs, stories and reports show it."""
