"""What SQLite and PostgreSQL share: statements by name, rows, and the methods that differ in no more than those."""
