-- The project that an environment is bound to: the name of the one whose model was stored first; empty if it is bound to none.

ALTER TABLE environment ADD COLUMN model_project TEXT NOT NULL DEFAULT '';
