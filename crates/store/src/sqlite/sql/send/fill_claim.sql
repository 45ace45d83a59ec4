-- Names the notifications that a claim holds. Primary key.
UPDATE send_claim SET notifications = :notifications WHERE id = :id
