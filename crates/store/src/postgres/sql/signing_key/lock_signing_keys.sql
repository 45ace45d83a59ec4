-- One rotation at a time.
LOCK TABLE campanile.signing_key IN SHARE ROW EXCLUSIVE MODE
