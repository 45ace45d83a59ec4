-- Identifies this database by the time at which its tables were created, and by its number. A copy by CREATE DATABASE
-- has another number. Uses the primary key.
SELECT applied_on::text, (SELECT oid::text FROM pg_database WHERE datname = current_database()) AS database
FROM campanile.schema_history WHERE version = 1
