-- What whoever set a value says about it: a JSON object that nobody here looks into.

ALTER TABLE parameter ADD COLUMN metadata TEXT NOT NULL DEFAULT '{}';
