-- A claim that holds nothing any more. Primary key.
DELETE FROM send_claim WHERE id = :id
