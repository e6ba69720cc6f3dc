-- Effects that must not be repeated: noted before they begin, and forgotten with their result. One whose result was lost is
-- unknown until a person chooses: 1 it is done, 2 it is run again.

CREATE TABLE begun (
    resource INTEGER PRIMARY KEY,
    environment INTEGER NOT NULL,
    version INTEGER NOT NULL,
    started INTEGER NOT NULL,
    is_unknown INTEGER NOT NULL,
    choice INTEGER
) STRICT;
