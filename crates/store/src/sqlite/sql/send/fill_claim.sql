-- Records which notifications a claim holds. Uses the primary key.
UPDATE send_claim SET notifications = :notifications WHERE id = :id
