-- What lets one machine join an environment as a remote agent, once. Only the hash of the token is kept.
CREATE TABLE invitation (
    id BLOB PRIMARY KEY,
    environment INTEGER NOT NULL,
    hash BLOB NOT NULL UNIQUE,
    -- The agents that it may serve, as a JSON list.
    names TEXT NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    -- The remote agent that joined with it.
    used_by BLOB
) STRICT, WITHOUT ROWID;
CREATE INDEX invitation_of_environment ON invitation (environment);
CREATE INDEX invitation_by_age ON invitation (expires);

CREATE TABLE remote_agent (
    id BLOB PRIMARY KEY,
    environment INTEGER NOT NULL,
    -- SHA-256 of the public key with which it joined.
    key BLOB NOT NULL,
    -- What it tells of its machine, as a JSON object.
    facts TEXT NOT NULL,
    version TEXT NOT NULL,
    joined INTEGER NOT NULL,
    revoked INTEGER,
    -- Grows with each session; only the newest one counts.
    session INTEGER NOT NULL DEFAULT 0,
    -- The process of the agent that has the session.
    boot BLOB,
    -- The gateway that has the session; NULL if there is none.
    gateway BLOB,
    connected INTEGER,
    -- When it was last seen before; as long as it has a session, it is seen when its gateway is.
    seen INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX remote_agent_of_environment ON remote_agent (environment, joined, id);
CREATE INDEX remote_agent_of_gateway ON remote_agent (gateway);

-- Who serves an agent. It stays when the remote agent is revoked: its resources must not land on another machine then.
CREATE TABLE remote_agent_name (
    environment INTEGER NOT NULL,
    name TEXT NOT NULL,
    agent BLOB NOT NULL,
    PRIMARY KEY (environment, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX remote_agent_name_of_agent ON remote_agent_name (agent);

-- Gateways that are, or were, alive.
CREATE TABLE gateway (
    id BLOB PRIMARY KEY,
    -- Where agents reach it, or another one that is as good.
    address TEXT NOT NULL,
    -- Where other servers reach just this one.
    peer_address TEXT NOT NULL,
    started INTEGER NOT NULL,
    seen INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
