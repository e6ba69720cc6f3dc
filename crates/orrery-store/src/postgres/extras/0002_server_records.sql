-- The change feed where transactions overlap: numbers are given in one order and committed in another.
--
-- A transaction that adds to the feed holds, until it ends, a shared lock whose name is a number below all that it takes. So
-- whoever reads up to the least of these names, or, if there is none, up to the number that was the last before looking at the
-- locks, misses nothing: what comes later has a greater number. Notes are written last in a transaction, which makes the wait
-- for others as short as their commits.

-- The last number that was given.
CREATE FUNCTION last_change() RETURNS bigint LANGUAGE sql VOLATILE AS
    $$ SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM change_id_seq $$;

-- Up to which number the feed is settled.
CREATE FUNCTION settled_change() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    newest bigint;
    pending bigint;
BEGIN
    newest := last_change();
    SELECT min((classid::bigint << 32) | objid::bigint) INTO pending FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 1 AND mode = 'ShareLock'
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
    RETURN least(newest, pending);
END $$;

-- Adds to the feed, and answers the last number that it gave.
CREATE FUNCTION note_changes(environments bigint[], kinds text[], subjects text[], times bigint[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    last bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(last_change());
    INSERT INTO change (environment, kind, subject, at)
        SELECT n.environment, n.kind, n.subject, coalesce(n.at, clock())
        FROM unnest(environments, kinds, subjects, times) AS n (environment, kind, subject, at);
    SELECT lastval() INTO last;
    RETURN last;
END $$;
