"""Pages of published workflows: text, graph, coverage, suggestions, what-if."""
