-- What a server keeps beside the state of deploys: who may do what, what was asked for, and what happened.
--
-- Written in the dialect that both databases share (see sql.rs). Ids of 16 bytes are UUIDs; times are microseconds.

ALTER TABLE project ADD COLUMN description TEXT NOT NULL DEFAULT '';
ALTER TABLE project ADD COLUMN created INTEGER NOT NULL DEFAULT 0;
ALTER TABLE project ADD COLUMN revision INTEGER NOT NULL DEFAULT 1;

ALTER TABLE environment ADD COLUMN description TEXT NOT NULL DEFAULT '';
ALTER TABLE environment ADD COLUMN icon TEXT NOT NULL DEFAULT '';
ALTER TABLE environment ADD COLUMN repository TEXT NOT NULL DEFAULT '';
ALTER TABLE environment ADD COLUMN branch TEXT NOT NULL DEFAULT '';
ALTER TABLE environment ADD COLUMN created INTEGER NOT NULL DEFAULT 0;
ALTER TABLE environment ADD COLUMN revision INTEGER NOT NULL DEFAULT 1;
ALTER TABLE environment ADD COLUMN halted INTEGER NOT NULL DEFAULT 0;
-- Deletion has begun; nothing may start here any more.
ALTER TABLE environment ADD COLUMN deleting INTEGER NOT NULL DEFAULT 0;

-- A setting that the project's own configuration has set is read-only for people; the text says who protects it.
ALTER TABLE setting ADD COLUMN protected_by TEXT;

-- Only while the environment is halted: whether the agent goes on when it resumes.
ALTER TABLE agent ADD COLUMN unpause_on_resume INTEGER;

ALTER TABLE version ADD COLUMN released_at INTEGER;

-- States of resources that people look for: what failed, was skipped, differs or is blocked. There are few of them, or many
-- enough to be met without an index.
CREATE INDEX state_notable ON state (resource) WHERE last_outcome > 1 OR blocked = 1;

-- What changed, in the order in which others may learn of it: a hint to read again, never the state itself.
CREATE TABLE change (
    id INTEGER PRIMARY KEY,
    -- 0 for what belongs to no environment.
    environment INTEGER NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;
CREATE INDEX change_of_environment ON change (environment, id);

-- What somebody asked an environment's engine to do once: deploy, repair, plan, refresh facts.
CREATE TABLE request (
    id INTEGER PRIMARY KEY,
    uuid BLOB NOT NULL UNIQUE,
    environment INTEGER NOT NULL,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    created INTEGER NOT NULL,
    taken INTEGER,
    finished INTEGER,
    outcome TEXT
) STRICT;
CREATE INDEX request_open ON request (environment, id) WHERE finished IS NULL;

CREATE TABLE dry_run (
    id BLOB PRIMARY KEY,
    environment INTEGER NOT NULL,
    version INTEGER NOT NULL,
    created INTEGER NOT NULL,
    finished INTEGER,
    total INTEGER NOT NULL,
    todo INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX dry_run_of_version ON dry_run (environment, version, created);

CREATE TABLE dry_run_result (
    dry_run BLOB NOT NULL,
    resource TEXT NOT NULL,
    status TEXT NOT NULL,
    changes TEXT NOT NULL,
    PRIMARY KEY (dry_run, resource)
) STRICT, WITHOUT ROWID;

-- Compile requests are the queue: one that has not started waits.
CREATE TABLE compile (
    id BLOB PRIMARY KEY,
    environment INTEGER NOT NULL,
    requested INTEGER NOT NULL,
    started INTEGER,
    completed INTEGER,
    -- What was asked for, as JSON, and what the run that served it used.
    request TEXT NOT NULL,
    used TEXT,
    success INTEGER,
    version INTEGER,
    -- The request whose run served this one too.
    substitute BLOB,
    -- Structured errors and what else the compiler had to say.
    data TEXT,
    handled INTEGER NOT NULL DEFAULT 0,
    -- Grows with each run; a run of an older epoch writes nothing any more.
    epoch INTEGER NOT NULL DEFAULT 0,
    -- Until when its run is believed to be alive; nothing else runs in the environment until then.
    alive_until INTEGER,
    -- The number under which its run stores its version, so that a second run does not store it twice.
    reserved INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX compile_of_environment ON compile (environment, requested, id);
CREATE INDEX compile_open ON compile (environment, requested) WHERE completed IS NULL;

-- One stage of a compile.
CREATE TABLE compile_stage (
    compile BLOB NOT NULL,
    position INTEGER NOT NULL,
    name TEXT NOT NULL,
    command TEXT NOT NULL,
    started INTEGER NOT NULL,
    completed INTEGER,
    returncode INTEGER,
    PRIMARY KEY (compile, position)
) STRICT, WITHOUT ROWID;

-- What a stage wrote, piece by piece: 1 is its output, 2 its errors.
CREATE TABLE compile_output (
    id INTEGER PRIMARY KEY,
    compile BLOB NOT NULL,
    position INTEGER NOT NULL,
    stream INTEGER NOT NULL,
    text TEXT NOT NULL
) STRICT;
CREATE INDEX compile_output_of_stage ON compile_output (compile, position, id);

CREATE TABLE notification (
    id BLOB PRIMARY KEY,
    environment INTEGER NOT NULL,
    created INTEGER NOT NULL,
    title TEXT NOT NULL,
    message TEXT NOT NULL,
    severity TEXT NOT NULL,
    uri TEXT NOT NULL,
    compile BLOB,
    read INTEGER NOT NULL DEFAULT 0,
    cleared INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX notification_of_environment ON notification (environment, created, id);

CREATE TABLE discovered (
    environment INTEGER NOT NULL,
    name TEXT NOT NULL,
    attributes TEXT NOT NULL,
    discovered_at INTEGER NOT NULL,
    discovery_resource TEXT NOT NULL,
    PRIMARY KEY (environment, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE account (
    id BLOB PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    -- NULL for accounts of an external issuer.
    password TEXT,
    issuer TEXT,
    admin INTEGER NOT NULL,
    disabled INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL,
    revision INTEGER NOT NULL DEFAULT 1
) STRICT, WITHOUT ROWID;

-- The scope is one byte (0 everything, 1 a project, 2 an environment) and an id.
CREATE TABLE role_assignment (
    account BLOB NOT NULL,
    scope BLOB NOT NULL,
    role TEXT NOT NULL,
    PRIMARY KEY (account, scope, role)
) STRICT, WITHOUT ROWID;

-- What a person got by logging in. Only hashes of secrets are kept, here and below.
CREATE TABLE session (
    hash BLOB PRIMARY KEY,
    account BLOB NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX session_of_account ON session (account);

CREATE TABLE token (
    id BLOB PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL,
    account BLOB,
    -- As above.
    scope BLOB,
    -- Its limits beyond that, as JSON.
    grants TEXT NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER,
    revoked INTEGER,
    last_used INTEGER
) STRICT, WITHOUT ROWID;

-- Who did what. Each entry's hash covers the one before it, so that nothing can be taken out or changed unseen.
CREATE TABLE audit (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    address TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    environment BLOB,
    status INTEGER NOT NULL,
    detail TEXT NOT NULL,
    hash BLOB NOT NULL
) STRICT;
CREATE INDEX audit_of_environment ON audit (environment, id);

-- Encrypted with a key that is not in here. 0 is no environment: for all.
CREATE TABLE secret (
    environment INTEGER NOT NULL,
    name TEXT NOT NULL,
    sealed BLOB NOT NULL,
    updated INTEGER NOT NULL,
    revision INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (environment, name)
) STRICT, WITHOUT ROWID;

-- Answers to requests that a client may repeat.
CREATE TABLE idempotency (
    actor TEXT NOT NULL,
    key TEXT NOT NULL,
    request BLOB NOT NULL,
    status INTEGER,
    headers TEXT,
    body BLOB,
    at INTEGER NOT NULL,
    PRIMARY KEY (actor, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_by_age ON idempotency (at);

-- Values are in thousandths.
CREATE TABLE metric (
    environment INTEGER NOT NULL,
    at INTEGER NOT NULL,
    name TEXT NOT NULL,
    category TEXT NOT NULL,
    count INTEGER NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (environment, name, at, category)
) STRICT, WITHOUT ROWID;

-- Processes of this installation that are, or were, alive.
CREATE TABLE member (
    id BLOB PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    roles TEXT NOT NULL,
    version TEXT NOT NULL,
    started INTEGER NOT NULL,
    seen INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What the installation has to remember about itself.
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
