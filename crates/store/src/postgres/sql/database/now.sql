-- The clock of the database.
SELECT campanile.now()
