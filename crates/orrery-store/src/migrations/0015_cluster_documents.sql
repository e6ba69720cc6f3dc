-- Cluster documents with all their revisions. `project` is 0 for documents of the installation. The newest revision of a deleted
-- document has no content; `created` is the time of the first revision since the document existed without a break.

CREATE TABLE cluster_document (
    id INTEGER PRIMARY KEY,
    project INTEGER NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    is_newest INTEGER NOT NULL,
    content TEXT,
    created INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    changed_by TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX cluster_document_by_revision ON cluster_document (project, kind, name, revision);
CREATE INDEX cluster_document_newest ON cluster_document (is_newest, project, kind, name);
