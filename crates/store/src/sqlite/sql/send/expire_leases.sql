-- At start: whoever held a claim is gone, because the file's lock is ours. Index send_claim_expiry.
UPDATE send_claim SET lease_until = '' WHERE lease_until > ''
