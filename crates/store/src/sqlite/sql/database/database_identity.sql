-- Identifies this file by the time at which its tables were created. Uses the primary key.
SELECT applied_on FROM refinery_schema_history WHERE version = 1
