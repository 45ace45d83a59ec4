-- Deletes a claim without sends. Primary key.
DELETE FROM send_claim WHERE id = :id
