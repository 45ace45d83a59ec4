-- Where a click on a notification leads: a template like the title, rendered when the message is sent.
ALTER TABLE template ADD COLUMN url TEXT;
