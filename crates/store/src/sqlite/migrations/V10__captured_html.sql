-- The HTML of a captured e-mail, where it had any.
ALTER TABLE captured_message ADD COLUMN html TEXT;
