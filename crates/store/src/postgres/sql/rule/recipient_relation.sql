-- Reads whether the recipients are a table of Campanile, or a view over tables of the business.
SELECT c.relkind FROM pg_class c WHERE c.oid = to_regclass('campanile.recipient')
