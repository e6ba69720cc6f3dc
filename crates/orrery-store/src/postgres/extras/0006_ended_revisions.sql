-- Each put that changes a resource updates its head and digest. If nothing that is indexed changes, and there is room on the page,
-- PostgreSQL does so in place and touches no index. An index on those without a head depends on the head, whatever its value;
-- one on whether there is a head does not.
ALTER TABLE resource SET (fillfactor = 50);
DROP INDEX resource_absent;
-- Writes the table anew, with the room.
ALTER TABLE resource ADD COLUMN absent boolean NOT NULL GENERATED ALWAYS AS (head IS NULL) STORED;
CREATE INDEX resource_absent ON resource (environment, id) WHERE absent;
