"""One file for each database: how it is opened for reading alone, its schema, its plans, its rows."""
