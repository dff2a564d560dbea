result = a + b  # noqa: F821  NoETL puts the arguments there by their names
