-- Connections of an environment's engine to the machines of its agents. Valid under the lease with the same epoch only.
CREATE TABLE agent_connection (
    environment INTEGER NOT NULL,
    name TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    state INTEGER NOT NULL,
    -- Last round trip, in microseconds.
    latency INTEGER,
    -- Time of the next attempt, and the reason for the last failure.
    retry_at INTEGER,
    problem TEXT NOT NULL,
    PRIMARY KEY (environment, name)
) STRICT, WITHOUT ROWID;

-- Last round trips of a gateway's sessions: 16 bytes of the remote agent's id, then 4 of microseconds, for each.
ALTER TABLE gateway ADD COLUMN latencies BLOB;
