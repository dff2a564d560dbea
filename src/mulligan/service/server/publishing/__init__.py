"""Publishing a project: the files that a workflow names, as one version; and a whole project by its mulligan.toml."""
