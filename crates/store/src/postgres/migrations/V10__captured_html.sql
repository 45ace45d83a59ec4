-- The HTML of a captured e-mail, where it had any.
ALTER TABLE campanile.captured_message ADD COLUMN html text;
