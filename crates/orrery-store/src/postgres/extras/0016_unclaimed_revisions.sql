-- Revisions and ends of revisions that were written on a second connection, before the version that they belong to: they count only
-- when their entry is gone.
CREATE TABLE unclaimed (
    environment bigint NOT NULL,
    step bigint NOT NULL,
    first_revision bigint NOT NULL,
    end_revision bigint NOT NULL,
    PRIMARY KEY (environment, step)
);

-- Computing the column for each row that is copied took as long as one of its indexes. It is written like any other now.
ALTER TABLE resource ALTER COLUMN absent DROP EXPRESSION;
ALTER TABLE resource ALTER COLUMN absent SET DEFAULT false;
