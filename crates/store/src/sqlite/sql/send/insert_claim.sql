-- Opens a claim. Its id is the fencing token.
INSERT INTO send_claim (instance, lease_until, notifications) VALUES (:instance, :lease_until, '[]')
