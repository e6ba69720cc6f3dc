-- A store as it was with schema 5: two versions of two resources.
PRAGMA application_id = 0x4f727279;
PRAGMA user_version = 5;
INSERT INTO project (id, uuid, name) VALUES (1, randomblob(16), 'default');
INSERT INTO environment (id, uuid, project, name, last_version) VALUES (1, randomblob(16), 1, 'default', 2);
INSERT INTO resource_set (id, environment, name) VALUES (7, 1, 's');
INSERT INTO resource_type (environment, name) VALUES (1, 't::R');
INSERT INTO agent (environment, name) VALUES (1, 'x');
INSERT INTO step (id, environment, first_revision, end_revision) VALUES (1, 1, 1, 3), (2, 1, 3, 4);
INSERT INTO version (environment, number, step, made_at, released, info, total, added, changed, removed)
    VALUES (1, 1, 1, 10, 1, '{}', 2, 2, 0, 0), (1, 2, 2, 20, 1, '{}', 2, 0, 1, 0);
INSERT INTO resource (environment, name, id, head, digest)
    VALUES (1, 't::R[x,name=a]', 1, 3, randomblob(16)), (1, 't::R[x,name=b]', 2, 2, randomblob(16));
INSERT INTO revision (id, environment, resource, since, until, resource_set, flags, hash, attributes) VALUES
    (1, 1, 1, 1, 2, 0, 0, randomblob(16), '{"v":1}'),
    (2, 1, 2, 1, NULL, 7, 0, randomblob(16), '{"v":1}'),
    (3, 1, 1, 2, NULL, 0, 0, randomblob(16), '{"v":2}');
UPDATE counter SET next = 10;
