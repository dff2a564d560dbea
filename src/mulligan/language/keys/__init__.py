"""The tables of keys from which files are read, and the schema and the reference are made."""
