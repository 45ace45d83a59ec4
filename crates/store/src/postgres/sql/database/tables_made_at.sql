-- What tells this database from others: when its tables were made, and its number, which a copy made by CREATE DATABASE
-- has not. Primary key.
SELECT applied_on::text, (SELECT oid::text FROM pg_database WHERE datname = current_database()) AS database
FROM campanile.schema_history WHERE version = 1
