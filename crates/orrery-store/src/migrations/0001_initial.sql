-- The first schema: environments, versions, resources and their states, actions, facts, leases.
--
-- Enumerations are small integers (see encoding.rs), times are microseconds since the epoch in UTC, digests are
-- blobs of 16 bytes. Hot tables declare no foreign keys: their rows are written in bulk, and the keys in them
-- come from this file alone.

-- Numbers that are never given twice, also after the rows that had them are gone.
CREATE TABLE counter (
    name TEXT PRIMARY KEY,
    next INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO counter (name, next) VALUES ('action', 1), ('resource', 1), ('revision', 1), ('step', 1);

CREATE TABLE project (
    id INTEGER PRIMARY KEY,
    uuid BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE environment (
    id INTEGER PRIMARY KEY,
    uuid BLOB NOT NULL UNIQUE,
    project INTEGER NOT NULL REFERENCES project (id),
    name TEXT NOT NULL,
    -- The highest version number that was handed out.
    last_version INTEGER NOT NULL DEFAULT 0,
    UNIQUE (project, name)
) STRICT;

CREATE TABLE setting (
    environment INTEGER NOT NULL REFERENCES environment (id),
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (environment, name)
) STRICT, WITHOUT ROWID;

-- Who may act for an environment. The epoch only grows.
CREATE TABLE lease (
    environment INTEGER PRIMARY KEY REFERENCES environment (id),
    epoch INTEGER NOT NULL,
    held INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    host TEXT NOT NULL,
    command TEXT NOT NULL,
    since INTEGER NOT NULL,
    expires INTEGER
) STRICT;

CREATE TABLE scheduler (
    environment INTEGER PRIMARY KEY REFERENCES environment (id),
    processed_version INTEGER NOT NULL
) STRICT;

-- One put of a version. Steps order the validity of revisions, because version numbers may arrive out of
-- order. A step outlives its version as long as revisions that it wrote are still in use. The revisions that
-- a step wrote have consecutive numbers.
CREATE TABLE step (
    id INTEGER PRIMARY KEY,
    environment INTEGER NOT NULL,
    first_revision INTEGER NOT NULL,
    end_revision INTEGER NOT NULL
) STRICT;

CREATE TABLE version (
    environment INTEGER NOT NULL REFERENCES environment (id),
    number INTEGER NOT NULL,
    step INTEGER NOT NULL UNIQUE,
    made_at INTEGER NOT NULL,
    released INTEGER NOT NULL,
    info TEXT NOT NULL,
    total INTEGER NOT NULL,
    added INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    removed INTEGER NOT NULL,
    PRIMARY KEY (environment, number)
) STRICT, WITHOUT ROWID;

-- Named sets of resources; 0 stands for the shared set and has no row.
CREATE TABLE resource_set (
    id INTEGER PRIMARY KEY,
    environment INTEGER NOT NULL,
    name TEXT NOT NULL,
    UNIQUE (environment, name)
) STRICT;

CREATE TABLE source_file (
    id INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE
) STRICT;

-- The types that occur in ids: with them, a filter by agent is a few ranges of names and needs no index.
CREATE TABLE resource_type (
    environment INTEGER NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (environment, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE agent (
    environment INTEGER NOT NULL,
    name TEXT NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (environment, name)
) STRICT, WITHOUT ROWID;

-- Every resource of a version that is kept, in the order of its id's text: putting a version walks this table and
-- nothing else to find what changed.
CREATE TABLE resource (
    environment INTEGER NOT NULL,
    name TEXT NOT NULL,
    id INTEGER NOT NULL,
    -- Its revision in the newest version, and the digest of that revision.
    head INTEGER,
    digest BLOB,
    -- Where a model last defined it.
    source_file INTEGER,
    source_line INTEGER,
    source_column INTEGER,
    PRIMARY KEY (environment, name)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX resource_by_id ON resource (id);
-- Those that the newest version does not have: candidates for being forgotten.
CREATE INDEX resource_absent ON resource (environment, id) WHERE head IS NULL;

-- What a resource should be, from the step `since` until before the step `until`; NULL means still.
CREATE TABLE revision (
    id INTEGER PRIMARY KEY,
    environment INTEGER NOT NULL,
    resource INTEGER NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER,
    resource_set INTEGER NOT NULL,
    flags INTEGER NOT NULL,
    hash BLOB NOT NULL,
    attributes TEXT NOT NULL,
    -- Numbers of resources, each as a variable-length integer; NULL for none.
    requires BLOB
) STRICT;
-- These index what was replaced and what is in a named set, so that the first put of a large model pays nothing.
CREATE INDEX revision_by_end ON revision (environment, until) WHERE until IS NOT NULL;
CREATE INDEX revision_past ON revision (resource) WHERE until IS NOT NULL;
CREATE INDEX revision_in_set ON revision (resource_set) WHERE until IS NULL AND resource_set <> 0;

-- What is kept of a resource over versions and restarts. A resource without a row is new.
CREATE TABLE state (
    resource INTEGER PRIMARY KEY,
    intent BLOB,
    undefined INTEGER NOT NULL,
    blocked INTEGER NOT NULL,
    last_run INTEGER NOT NULL,
    last_run_compliant INTEGER,
    last_outcome INTEGER,
    last_run_at INTEGER,
    last_deployed BLOB,
    last_success INTEGER,
    last_produced_events INTEGER,
    attempts INTEGER NOT NULL,
    parked INTEGER NOT NULL
) STRICT;

-- Actions that began and have no result yet. What is here when an engine starts was interrupted.
CREATE TABLE running (
    resource INTEGER PRIMARY KEY,
    environment INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    version INTEGER NOT NULL,
    started INTEGER NOT NULL
) STRICT;

-- Finished and interrupted actions, in the order in which they were recorded.
CREATE TABLE action (
    id INTEGER PRIMARY KEY,
    environment INTEGER NOT NULL,
    resource INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    version INTEGER NOT NULL,
    started INTEGER NOT NULL,
    -- NULL if it was interrupted.
    finished INTEGER,
    outcome INTEGER,
    change INTEGER NOT NULL,
    changes TEXT,
    log TEXT
) STRICT;
CREATE INDEX action_by_resource ON action (resource);

-- Facts belong to a resource; parameters belong to none, which is 0.
CREATE TABLE parameter (
    environment INTEGER NOT NULL,
    resource INTEGER NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    source INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    PRIMARY KEY (environment, resource, name)
) STRICT, WITHOUT ROWID;

-- What a compile could not know. `resource` is the text of an id, or empty.
CREATE TABLE unknown (
    environment INTEGER NOT NULL,
    version INTEGER NOT NULL,
    resource TEXT NOT NULL,
    name TEXT NOT NULL,
    source TEXT NOT NULL,
    resolved INTEGER NOT NULL,
    PRIMARY KEY (environment, version, resource, name)
) STRICT, WITHOUT ROWID;
-- Every fact that arrives is looked for here.
CREATE INDEX unknown_open ON unknown (environment, resource, name) WHERE resolved = 0;

CREATE TABLE file_content (
    hash BLOB PRIMARY KEY,
    content BLOB NOT NULL
) STRICT;
