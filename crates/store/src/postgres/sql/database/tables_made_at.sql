-- An identity of this database: when its tables were made, and its number, which a copy by CREATE DATABASE does not
-- share. Primary key.
SELECT applied_on::text, (SELECT oid::text FROM pg_database WHERE datname = current_database()) AS database
FROM campanile.schema_history WHERE version = 1
