-- Up to which moment of arrival old rows are deleted. It moves with the uptime of instances, so that a clock that jumps ahead deletes
-- nothing. One row, from the first time that there is something to keep.
CREATE TABLE retain_horizon (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    horizon TEXT NOT NULL,
    -- Rises with each look at it by whoever moves it, so that of several instances one does.
    moves   INTEGER NOT NULL
);
