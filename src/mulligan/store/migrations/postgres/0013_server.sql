-- A definition belongs to one project: in `workflows` its version is `@PROJECT/VERSION`, and VERSION alone in the first
-- project. What is there already stays, for the runs of all projects that were started with it. Older processes look for
-- a version alone, and would not find the others.
CREATE OR REPLACE FUNCTION schema_needed() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT 13::bigint';
