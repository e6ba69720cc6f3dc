-- 1 once something that the request with this key does is committed, in the same transaction: it is never carried out again.
-- 2 if who carried it out is known to be gone, and there will be no answer.
ALTER TABLE idempotency ADD COLUMN acted INTEGER NOT NULL DEFAULT 0;
