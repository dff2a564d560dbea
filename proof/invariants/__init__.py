"""The promises as functions over logs and tables: what a checker reads is never what it checks."""
