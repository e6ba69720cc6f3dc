-- Where a resource comes from: 0 it was removed, 1 its first recorded deploy found it in place, 2 a deploy created it; NULL if no deploy
-- of it ended well. Removing leaves alone what no deploy created, long after the log has forgotten how it began.

ALTER TABLE state ADD COLUMN origin INTEGER;
UPDATE state SET origin = 2 WHERE resource IN (SELECT resource FROM action WHERE change = 1);
