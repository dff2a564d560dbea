-- Large outputs: in the database, so that every host sees them. With SQLite they are files.
CREATE TABLE artifacts (
    name    text COLLATE "C" PRIMARY KEY,
    data    bytea NOT NULL,
    size    bigint NOT NULL,
    kept_at bigint NOT NULL
);
