-- A holder renews a claim that has not expired yet; an expired one is left to whoever takes it over. Primary key.
UPDATE send_claim SET lease_until = :lease_until WHERE id = :id AND lease_until >= :now
