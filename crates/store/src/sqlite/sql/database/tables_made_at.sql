-- An identity of this file: when its tables were made. Primary key.
SELECT applied_on FROM refinery_schema_history WHERE version = 1
