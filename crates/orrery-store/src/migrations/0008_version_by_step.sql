-- Whether a release has been taken in yet is asked with each list of resources: the newest version is the end of a range.

CREATE INDEX version_by_step ON version (environment, step);
