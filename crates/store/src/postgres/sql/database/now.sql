-- Reads the clock of the database.
SELECT campanile.now()
