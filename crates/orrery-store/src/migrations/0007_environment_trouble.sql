-- Why an environment cannot be worked on now; empty if it can.

ALTER TABLE environment ADD COLUMN trouble TEXT NOT NULL DEFAULT '';
