-- Networks from which an account has logged in, a few for each account: wrong passwords that come from elsewhere do not hold it up there.

CREATE TABLE familiar (
    account BLOB NOT NULL,
    network TEXT NOT NULL,
    seen INTEGER NOT NULL,
    PRIMARY KEY (account, network)
) STRICT, WITHOUT ROWID;

-- What is looked for at each login, and by people who look for what somebody did.
CREATE INDEX session_by_expiry ON session (expires);
CREATE INDEX audit_of_actor ON audit (actor, id);
CREATE INDEX audit_by_time ON audit (at, id);
CREATE INDEX request_of_environment ON request (environment, id);
CREATE INDEX token_of_account ON token (account, created);

-- The token that an invitation was made with: the invitation ends with it.
ALTER TABLE invitation ADD COLUMN token BLOB;
