-- A put that changes everything writes new revisions and touches no old one: that a revision is over stands in a table of its own,
-- and which resources a set has now stands with the resources.

-- Revisions that are over: what a resource should be, until before the step `until`.
CREATE TABLE ended (
    environment INTEGER NOT NULL,
    until INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    resource INTEGER NOT NULL,
    PRIMARY KEY (environment, until, revision)
) STRICT, WITHOUT ROWID;
INSERT INTO ended (environment, until, revision, resource)
    SELECT environment, until, id, resource FROM revision WHERE until IS NOT NULL;
CREATE INDEX ended_of_resource ON ended (resource);

-- The set of the newest version that it is in; 0 for the shared one, and if the newest version does not have it.
ALTER TABLE resource ADD COLUMN resource_set INTEGER NOT NULL DEFAULT 0;
UPDATE resource SET resource_set = (SELECT revision.resource_set FROM revision WHERE revision.id = resource.head)
    WHERE head IN (SELECT id FROM revision WHERE until IS NULL AND resource_set <> 0);
CREATE INDEX resource_in_set ON resource (resource_set) WHERE resource_set <> 0;

DROP INDEX revision_by_end;
DROP INDEX revision_past;
DROP INDEX revision_in_set;
ALTER TABLE revision DROP COLUMN until;
