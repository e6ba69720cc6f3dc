-- Clusters: each is an environment with an intent. The record stays when the cluster is terminated and its environment deleted.

CREATE TABLE cluster (
    id INTEGER PRIMARY KEY,
    -- Short and unique in the installation: part of the names of machines.
    code TEXT NOT NULL UNIQUE,
    project INTEGER NOT NULL,
    environment INTEGER NOT NULL,
    environment_uuid BLOB NOT NULL,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    owner TEXT NOT NULL,
    template TEXT NOT NULL,
    template_revision INTEGER NOT NULL,
    provider TEXT NOT NULL,
    status INTEGER NOT NULL,
    message TEXT NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER,
    terminated INTEGER,
    -- Nodes of the newest intent, and nodes that may exist until its operation has ended.
    size INTEGER NOT NULL,
    reserved INTEGER NOT NULL,
    services TEXT NOT NULL,
    -- Of the record and of the newest intent: both grow with every change by a user.
    revision INTEGER NOT NULL,
    intent INTEGER NOT NULL,
    -- The newest intent that was carried out completely; 0 if none was.
    settled_intent INTEGER NOT NULL,
    -- End of the lease that a reminder was sent for.
    reminded INTEGER
) STRICT;

CREATE UNIQUE INDEX cluster_live_name ON cluster (project, name) WHERE terminated IS NULL;
CREATE INDEX cluster_of_environment ON cluster (environment);
CREATE INDEX cluster_of_project ON cluster (project, name, code);
CREATE INDEX cluster_lease ON cluster (expires) WHERE terminated IS NULL AND expires IS NOT NULL;

-- Intents with their history, compressed.
CREATE TABLE cluster_intent (
    cluster INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    created INTEGER NOT NULL,
    author TEXT NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (cluster, revision)
) STRICT, WITHOUT ROWID;

CREATE TABLE cluster_operation (
    cluster INTEGER NOT NULL,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    state INTEGER NOT NULL,
    message TEXT NOT NULL,
    author TEXT NOT NULL,
    requested INTEGER NOT NULL,
    ended INTEGER,
    request TEXT NOT NULL,
    plan TEXT NOT NULL,
    -- Final progress of an ended operation.
    progress TEXT,
    -- Intents: the one that it carries out, and the one before it.
    intent INTEGER NOT NULL,
    base INTEGER NOT NULL,
    version INTEGER NOT NULL,
    -- A version without the resources that the operation removes follows.
    is_transition INTEGER NOT NULL,
    PRIMARY KEY (cluster, number)
) STRICT, WITHOUT ROWID;

-- One operation at a time.
CREATE UNIQUE INDEX cluster_operation_open ON cluster_operation (cluster) WHERE ended IS NULL;

-- Resources of plug-ins, such as scripts, with all their versions.
CREATE TABLE plugin_resource (
    id INTEGER PRIMARY KEY,
    project INTEGER NOT NULL,
    plugin TEXT NOT NULL,
    type TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    digest TEXT NOT NULL,
    size INTEGER NOT NULL,
    is_live INTEGER NOT NULL,
    is_staged INTEGER NOT NULL,
    created INTEGER NOT NULL,
    created_by TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX plugin_resource_by_version ON plugin_resource (project, plugin, type, name, version);
CREATE INDEX plugin_resource_by_digest ON plugin_resource (digest);

-- Contents by SHA-256. Not in file_content, whose contents expire unless a version mentions their SHA-1.
CREATE TABLE plugin_content (
    digest TEXT PRIMARY KEY,
    content BLOB NOT NULL
) STRICT, WITHOUT ROWID;
