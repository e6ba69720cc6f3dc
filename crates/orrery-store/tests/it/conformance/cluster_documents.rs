//! Cluster documents: revisions, scopes, conflicts, and all or nothing.

use orrery_model::{ProjectId, Timestamp};
use orrery_store::{
    ChangeSeq, ClusterDocumentRecord, DocumentFilter, DocumentName, DocumentWrite, Store,
    StoreError,
};

use crate::support::{Backend, id_of};

super::list_cases![
    documents_keep_every_revision,
    documents_are_changed_together_or_not_at_all,
    a_change_since_the_snapshot_is_found,
    documents_of_a_project_are_its_own,
    documents_come_in_pages,
];

fn at(time: i64) -> Timestamp {
    Timestamp(time)
}

const fn service<'a>(name: &'a str, content: Option<&'a str>) -> DocumentWrite<'a> {
    DocumentWrite { kind: "service", name, content, expected: None }
}

const fn named(name: &str) -> DocumentName<'_> {
    DocumentName { project: None, kind: "service", name }
}

/// Writes on the current snapshot.
fn write(
    store: &Store,
    project: Option<ProjectId>,
    writes: &[DocumentWrite<'_>],
    time: i64,
) -> Result<Vec<ClusterDocumentRecord>, StoreError> {
    let head = store.cluster_documents().snapshot()?.head;
    store.cluster_documents().write(project, head, writes, "user:ada", at(time))
}

fn revisions(store: &Store, name: &str) -> Vec<(i64, Option<String>, i64)> {
    let found = store.cluster_documents().history(named(name), None, 100).unwrap();
    found.into_iter().map(|one| (one.revision, one.content, one.changed.0)).collect()
}

fn documents_keep_every_revision(backend: Backend) {
    let store = backend.fresh();
    let created = write(&store, None, &[service("a", Some("1"))], 5).unwrap().remove(0);
    assert_eq!((created.revision, created.created, created.changed), (1, at(5), at(5)));
    assert_eq!((created.content.as_deref(), &*created.changed_by), (Some("1"), "user:ada"));
    let same = write(&store, None, &[service("a", Some("1"))], 6).unwrap().remove(0);
    assert_eq!(same, created, "the same content is no revision");
    let changed = write(&store, None, &[service("a", Some("2"))], 7).unwrap().remove(0);
    assert_eq!((changed.revision, changed.created, changed.changed), (2, at(5), at(7)));
    let gone = write(&store, None, &[service("a", None)], 8).unwrap().remove(0);
    assert_eq!((gone.revision, gone.content), (3, None));
    assert!(matches!(
        store.cluster_documents().get(named("a"), None),
        Err(StoreError::NotFound { .. })
    ));
    let again = write(&store, None, &[service("a", None)], 9);
    assert!(matches!(again, Err(StoreError::NotFound { .. })), "{again:?}");
    assert!(store.cluster_documents().snapshot().unwrap().documents.is_empty());
    let back = write(&store, None, &[service("a", Some("4"))], 10).unwrap().remove(0);
    assert_eq!((back.revision, back.created), (4, at(10)), "numbers go on");
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        revisions(&store, "a"),
        [(4, some("4"), 10), (3, None, 8), (2, some("2"), 7), (1, some("1"), 5)]
    );
    assert_eq!(store.cluster_documents().get(named("a"), Some(2)).unwrap(), changed);
    assert_eq!(store.cluster_documents().get(named("a"), Some(3)).unwrap().content, None);
    assert!(matches!(
        store.cluster_documents().get(named("a"), Some(9)),
        Err(StoreError::NotFound { .. })
    ));
    let page = store.cluster_documents().history(named("a"), Some(3), 1).unwrap();
    assert_eq!(page.iter().map(|one| one.revision).collect::<Vec<_>>(), [2]);
    let never = store.cluster_documents().history(named("never"), None, 1);
    assert!(matches!(never, Err(StoreError::NotFound { .. })), "{never:?}");
}

fn documents_are_changed_together_or_not_at_all(backend: Backend) {
    let store = backend.fresh();
    write(&store, None, &[service("a", Some("1"))], 1).unwrap();
    let before = store.changes().latest().unwrap();
    let outdated = DocumentWrite { expected: Some(7), ..service("a", Some("2")) };
    let error = write(&store, None, &[service("b", Some("1")), outdated], 2).unwrap_err();
    assert!(matches!(error, StoreError::Outdated { expected: 7, current: 1, .. }), "{error}");
    let exists = DocumentWrite { expected: Some(0), ..service("a", Some("2")) };
    let error = write(&store, None, &[service("b", Some("1")), exists], 2).unwrap_err();
    assert!(matches!(error, StoreError::Outdated { expected: 0, current: 1, .. }), "{error}");
    assert!(matches!(
        store.cluster_documents().get(named("b"), None),
        Err(StoreError::NotFound { .. })
    ));
    assert_eq!(store.changes().latest().unwrap(), before, "nothing is noted that did not happen");
    let current = DocumentWrite { expected: Some(1), ..service("a", Some("2")) };
    let new = DocumentWrite { expected: Some(0), ..service("b", Some("1")) };
    assert_eq!(write(&store, None, &[new, current], 3).unwrap().len(), 2);
    let notes = store.changes().list(ChangeSeq(before.0), None, 10).unwrap();
    let notes: Vec<(&str, &str)> = notes.iter().map(|note| (&*note.kind, &*note.subject)).collect();
    assert_eq!(notes, [("cluster_document", "service/b"), ("cluster_document", "service/a")]);
}

fn a_change_since_the_snapshot_is_found(backend: Backend) {
    let store = backend.fresh();
    let head = store.cluster_documents().snapshot().unwrap().head;
    write(&store, None, &[service("a", Some("1"))], 1).unwrap();
    let late =
        store.cluster_documents().write(None, head, &[service("b", Some("1"))], "user:bo", at(2));
    assert!(matches!(late, Err(StoreError::DocumentsChanged)), "{late:?}");
    assert_eq!(store.cluster_documents().snapshot().unwrap().documents.len(), 1);
}

fn documents_of_a_project_are_its_own(backend: Backend) {
    let store = backend.fresh();
    let (shop, zoo) = (id_of(1), id_of(2));
    store.projects().create(shop, "shop", "", at(1)).unwrap();
    store.projects().create(zoo, "zoo", "", at(1)).unwrap();
    write(&store, None, &[service("a", Some("1")), service("b", Some("1"))], 1).unwrap();
    let own = [service("b", Some("2")), service("c", Some("2"))];
    let created = write(&store, Some(shop), &own, 2).unwrap();
    assert_eq!((created[0].project, created[0].revision), (Some(shop), 1));
    let visible = |project: Option<ProjectId>| -> Vec<(String, bool)> {
        let filter = DocumentFilter { project, ..DocumentFilter::default() };
        let found = store.cluster_documents().list(&filter, 10).unwrap();
        found.into_iter().map(|one| (one.name, one.project.is_some())).collect()
    };
    let expected = |names: &[(&str, bool)]| -> Vec<(String, bool)> {
        names.iter().map(|(name, own)| ((*name).to_owned(), *own)).collect()
    };
    assert_eq!(visible(None), expected(&[("a", false), ("b", false)]));
    assert_eq!(visible(Some(zoo)), expected(&[("a", false), ("b", false)]));
    assert_eq!(visible(Some(shop)), expected(&[("a", false), ("b", true), ("c", true)]));
    let of_zoo = DocumentName { project: Some(zoo), ..named("c") };
    assert!(matches!(
        store.cluster_documents().get(of_zoo, None),
        Err(StoreError::NotFound { .. })
    ));
    let nowhere = write(&store, Some(id_of(9)), &[service("x", Some("1"))], 3);
    assert!(matches!(nowhere, Err(StoreError::NotFound { .. })), "{nowhere:?}");
    write(&store, Some(shop), &[service("b", None)], 4).unwrap();
    assert_eq!(visible(Some(shop)), expected(&[("a", false), ("b", false), ("c", true)]));
    assert_eq!(store.cluster_documents().snapshot().unwrap().documents.len(), 3);
    store.projects().delete(shop, None, at(5)).unwrap();
    let remaining = store.cluster_documents().snapshot().unwrap().documents;
    assert!(
        remaining.iter().all(|one| one.project.is_none()) && remaining.len() == 2,
        "{remaining:?}"
    );
}

fn documents_come_in_pages(backend: Backend) {
    let store = backend.fresh();
    let image = DocumentWrite { kind: "image", ..service("z", Some("1")) };
    let writes = [service("b", Some("1")), image, service("a", Some("1"))];
    write(&store, None, &writes, 1).unwrap();
    let page = |filter: DocumentFilter<'_>, limit| -> Vec<String> {
        let found = store.cluster_documents().list(&filter, limit).unwrap();
        found.into_iter().map(|one| format!("{}/{}", one.kind, one.name)).collect()
    };
    let all = DocumentFilter::default();
    assert_eq!(page(all, 2), ["image/z", "service/a"]);
    let next = DocumentFilter { after: Some(("service", "a")), ..all };
    assert_eq!(page(next, 2), ["service/b"]);
    let services = DocumentFilter { kind: Some("service"), ..all };
    assert_eq!(page(services, 1), ["service/a"]);
    let next = DocumentFilter { after: Some(("service", "a")), ..services };
    assert_eq!(page(next, 5), ["service/b"]);
}
