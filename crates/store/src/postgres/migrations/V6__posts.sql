-- The claim under which an event may have been posted to a webhook. Rows of an earlier release have none: nobody knows under which.
ALTER TABLE campanile.event_post ADD COLUMN lease bigint;
