-- Resource types of its own that a remote agent offers, as a JSON list of declarations.
ALTER TABLE remote_agent ADD COLUMN offered TEXT NOT NULL DEFAULT '[]';
