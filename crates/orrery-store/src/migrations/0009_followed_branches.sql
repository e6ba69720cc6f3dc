-- Branches that environments follow: what is known of them, and when they are looked at next.

CREATE TABLE followed (
    environment INTEGER NOT NULL PRIMARY KEY,
    -- A digest of the repository and the branch that this row is about.
    source TEXT NOT NULL,
    -- The newest commit that a compile was requested for; empty if none is known.
    seen TEXT NOT NULL DEFAULT '',
    -- The commit of the last successful compile that exports.
    compiled TEXT NOT NULL DEFAULT '',
    checked INTEGER,
    due INTEGER NOT NULL,
    failures INTEGER NOT NULL DEFAULT 0,
    error TEXT NOT NULL DEFAULT '',
    -- Compiles of `seen` that could not fetch it.
    unfetched INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX followed_by_due ON followed (due);

-- States of commits that are still to be reported to the forge: the newest state of each commit.
CREATE TABLE commit_status (
    environment INTEGER NOT NULL,
    commit_hash TEXT NOT NULL,
    state TEXT NOT NULL,
    description TEXT NOT NULL,
    compile BLOB NOT NULL,
    changed INTEGER NOT NULL,
    due INTEGER NOT NULL,
    failures INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (environment, commit_hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX commit_status_by_due ON commit_status (due);
