-- Who needs the content of a file, and since when: an account that uploaded it, or an environment that a version with it belongs to.
-- What nothing has needed for a while, and no version refers to, is deleted.

CREATE TABLE content_claim (
    hash BLOB NOT NULL,
    -- One byte (0 nothing, 1 an account, 2 an environment) and an id.
    holder BLOB NOT NULL,
    size INTEGER NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (hash, holder)
) STRICT, WITHOUT ROWID;
CREATE INDEX content_claim_of_holder ON content_claim (holder, at);
