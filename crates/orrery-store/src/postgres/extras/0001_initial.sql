-- What PostgreSQL has beside the schema that both databases share.

-- A row that counts would make every writer wait for every other one; sequences do not.
DROP TABLE counter;
CREATE SEQUENCE action_number;
CREATE SEQUENCE resource_number;
CREATE SEQUENCE revision_number;
CREATE SEQUENCE step_number;

-- Takes consecutive numbers and answers the first. The lock is held for the two steps only, not until the transaction ends.
CREATE FUNCTION take_numbers(counter regclass, amount bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    first bigint;
BEGIN
    PERFORM pg_advisory_lock(1, counter::oid::integer);
    first := nextval(counter);
    IF amount > 1 THEN
        PERFORM setval(counter, first + amount - 1);
    END IF;
    PERFORM pg_advisory_unlock(1, counter::oid::integer);
    RETURN first;
END $$;

-- Microseconds since the epoch, at the moment and not at the beginning of the transaction.
CREATE FUNCTION clock() RETURNS bigint LANGUAGE sql VOLATILE AS
    $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- How long a lease lasts without being renewed; NULL for ever. Its end is by the clock of the database.
ALTER TABLE lease ADD COLUMN lasts bigint;

-- Updated again and again, column by column: room on the page keeps that cheap.
ALTER TABLE state SET (fillfactor = 60);

-- The latest actions on a resource are the end of a range of one index.
DROP INDEX action_by_resource;
CREATE INDEX action_by_resource ON action (resource, id);
