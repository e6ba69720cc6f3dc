//! Contents that the handlers of an environment get, observed at the target.

use std::collections::BTreeSet;

use orrery_store::{ContentHash, ContentHolder};

use super::*;

/// A file whose content is referred to by its hash.
fn file(path: &std::path::Path, hash: &str) -> Resource {
    let path = path.display().to_string();
    let id = ResourceId::new("std::File", "localhost", "path", &path).unwrap();
    let attributes = json!({
        "path": path, "hash": hash, "mode": 644, "owner": null, "group": null, "purged": false,
    });
    Resource::new(id, Attributes::parse(&attributes.to_string()).unwrap(), Vec::new())
}

/// A model that guesses the hash of another environment's content gets nothing.
fn an_environment_gets_its_own_contents_only(kind: Kind) {
    let mut world = World::new(kind);
    let directory = tempfile::tempdir().unwrap();
    let [shop, lab] = ["shop", "lab"].map(|name| world.environment(name).key);
    let content = b"door_pin=4711";
    let name = orrery_host::bundle::sha1_hex(content);
    let hash = ContentHash::from_hex(&name).unwrap();
    let store = world.app.store().clone();
    store.contents().put(&[(hash, content)]).unwrap();
    let holder = ContentHolder::Environment(shop);
    store.contents().claim(holder, &BTreeSet::from([hash]), world.app.now()).unwrap();
    let [own, guessed] = ["own", "guessed"].map(|name| directory.path().join(name));
    world.start();
    let (of_shop, of_lab) = (file(&own, &name), file(&guessed, &name));
    world.put(shop, std::slice::from_ref(&of_shop));
    world.put(lab, std::slice::from_ref(&of_lab));
    world.until_deployed(shop, std::slice::from_ref(&of_shop));
    world.until("a failure", |world| world.status(lab, &of_lab) == Some(Status::Failed));
    assert_eq!(std::fs::read(&own).unwrap(), content);
    assert!(!guessed.exists());
}

#[test]
fn an_environment_gets_its_own_contents_only_on_sqlite() {
    an_environment_gets_its_own_contents_only(Kind::Sqlite);
}

#[test]
fn an_environment_gets_its_own_contents_only_on_postgres() {
    an_environment_gets_its_own_contents_only(Kind::Postgres);
}
