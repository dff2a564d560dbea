"""The verbs, once, for every face: what people and programs can ask of Mulligan."""
