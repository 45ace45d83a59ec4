-- Below which priority a channel is not used: of an event type, and of a group.
ALTER TABLE campanile.event_type_channel_routing ADD COLUMN min_priority text COLLATE "C";
ALTER TABLE campanile.entity_notification_settings ADD COLUMN min_priority text COLLATE "C";
