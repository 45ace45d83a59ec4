-- Renews a claim that has not expired. An expired claim is left for another holder to take over. Uses the primary key.
UPDATE send_claim SET lease_until = :lease_until WHERE id = :id AND lease_until >= :now
