-- Every lease has an end: that a holder on another machine is gone, nobody would ever know.
UPDATE lease SET lasts = 60000000, expires = clock() + 60000000 WHERE lasts IS NULL;
ALTER TABLE lease ALTER COLUMN lasts SET NOT NULL;
