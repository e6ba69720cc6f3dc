//! Cluster documents: revisions, scopes, conflicts, and all or nothing.

use orrery_model::Timestamp;
use orrery_store::{
    ChangeSeq, ClusterDocumentRecord, DocumentFilter, DocumentName, DocumentWrite, Records,
    StoreError,
};

use crate::support::Backend;

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
    records: &Records<'_>,
    project: Option<&[u8; 16]>,
    writes: &[DocumentWrite<'_>],
    time: i64,
) -> Result<Vec<ClusterDocumentRecord>, StoreError> {
    let head = records.document_snapshot()?.head;
    records.write_documents(project, head, writes, "user:ada", at(time))
}

fn revisions(records: &Records<'_>, name: &str) -> Vec<(i64, Option<String>, i64)> {
    let found = records.document_history(named(name), None, 100).unwrap();
    found.into_iter().map(|one| (one.revision, one.content, one.changed.0)).collect()
}

fn documents_keep_every_revision(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    let created = write(&records, None, &[service("a", Some("1"))], 5).unwrap().remove(0);
    assert_eq!((created.revision, created.created, created.changed), (1, at(5), at(5)));
    assert_eq!((created.content.as_deref(), &*created.changed_by), (Some("1"), "user:ada"));
    let same = write(&records, None, &[service("a", Some("1"))], 6).unwrap().remove(0);
    assert_eq!(same, created, "the same content is no revision");
    let changed = write(&records, None, &[service("a", Some("2"))], 7).unwrap().remove(0);
    assert_eq!((changed.revision, changed.created, changed.changed), (2, at(5), at(7)));
    let gone = write(&records, None, &[service("a", None)], 8).unwrap().remove(0);
    assert_eq!((gone.revision, gone.content), (3, None));
    assert!(matches!(records.document(named("a"), None), Err(StoreError::NotFound { .. })));
    let again = write(&records, None, &[service("a", None)], 9);
    assert!(matches!(again, Err(StoreError::NotFound { .. })), "{again:?}");
    assert!(records.document_snapshot().unwrap().documents.is_empty());
    let back = write(&records, None, &[service("a", Some("4"))], 10).unwrap().remove(0);
    assert_eq!((back.revision, back.created), (4, at(10)), "numbers go on");
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        revisions(&records, "a"),
        [(4, some("4"), 10), (3, None, 8), (2, some("2"), 7), (1, some("1"), 5)]
    );
    assert_eq!(records.document(named("a"), Some(2)).unwrap(), changed);
    assert_eq!(records.document(named("a"), Some(3)).unwrap().content, None);
    assert!(matches!(records.document(named("a"), Some(9)), Err(StoreError::NotFound { .. })));
    let page = records.document_history(named("a"), Some(3), 1).unwrap();
    assert_eq!(page.iter().map(|one| one.revision).collect::<Vec<_>>(), [2]);
    let never = records.document_history(named("never"), None, 1);
    assert!(matches!(never, Err(StoreError::NotFound { .. })), "{never:?}");
}

fn documents_are_changed_together_or_not_at_all(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    write(&records, None, &[service("a", Some("1"))], 1).unwrap();
    let before = records.latest_change().unwrap();
    let outdated = DocumentWrite { expected: Some(7), ..service("a", Some("2")) };
    let error = write(&records, None, &[service("b", Some("1")), outdated], 2).unwrap_err();
    assert!(matches!(error, StoreError::Outdated { expected: 7, current: 1, .. }), "{error}");
    let exists = DocumentWrite { expected: Some(0), ..service("a", Some("2")) };
    let error = write(&records, None, &[service("b", Some("1")), exists], 2).unwrap_err();
    assert!(matches!(error, StoreError::Outdated { expected: 0, current: 1, .. }), "{error}");
    assert!(matches!(records.document(named("b"), None), Err(StoreError::NotFound { .. })));
    assert_eq!(records.latest_change().unwrap(), before, "nothing is noted that did not happen");
    let current = DocumentWrite { expected: Some(1), ..service("a", Some("2")) };
    let new = DocumentWrite { expected: Some(0), ..service("b", Some("1")) };
    assert_eq!(write(&records, None, &[new, current], 3).unwrap().len(), 2);
    let notes = records.changes(ChangeSeq(before.0), None, 10).unwrap();
    let notes: Vec<(&str, &str)> = notes.iter().map(|note| (&*note.kind, &*note.subject)).collect();
    assert_eq!(notes, [("cluster_document", "service/b"), ("cluster_document", "service/a")]);
}

fn a_change_since_the_snapshot_is_found(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    let head = records.document_snapshot().unwrap().head;
    write(&records, None, &[service("a", Some("1"))], 1).unwrap();
    let late = records.write_documents(None, head, &[service("b", Some("1"))], "user:bo", at(2));
    assert!(matches!(late, Err(StoreError::DocumentsChanged)), "{late:?}");
    assert_eq!(records.document_snapshot().unwrap().documents.len(), 1);
}

fn documents_of_a_project_are_its_own(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    let (shop, zoo) = ([1; 16], [2; 16]);
    records.create_project(shop, "shop", "", at(1)).unwrap();
    records.create_project(zoo, "zoo", "", at(1)).unwrap();
    write(&records, None, &[service("a", Some("1")), service("b", Some("1"))], 1).unwrap();
    let own = [service("b", Some("2")), service("c", Some("2"))];
    let created = write(&records, Some(&shop), &own, 2).unwrap();
    assert_eq!((created[0].project, created[0].revision), (Some(shop), 1));
    let visible = |project: Option<&[u8; 16]>| -> Vec<(String, bool)> {
        let filter = DocumentFilter { project, ..DocumentFilter::default() };
        let found = records.list_documents(&filter, 10).unwrap();
        found.into_iter().map(|one| (one.name, one.project.is_some())).collect()
    };
    let expected = |names: &[(&str, bool)]| -> Vec<(String, bool)> {
        names.iter().map(|(name, own)| ((*name).to_owned(), *own)).collect()
    };
    assert_eq!(visible(None), expected(&[("a", false), ("b", false)]));
    assert_eq!(visible(Some(&zoo)), expected(&[("a", false), ("b", false)]));
    assert_eq!(visible(Some(&shop)), expected(&[("a", false), ("b", true), ("c", true)]));
    let of_zoo = DocumentName { project: Some(&zoo), ..named("c") };
    assert!(matches!(records.document(of_zoo, None), Err(StoreError::NotFound { .. })));
    let nowhere = write(&records, Some(&[9; 16]), &[service("x", Some("1"))], 3);
    assert!(matches!(nowhere, Err(StoreError::NotFound { .. })), "{nowhere:?}");
    write(&records, Some(&shop), &[service("b", None)], 4).unwrap();
    assert_eq!(visible(Some(&shop)), expected(&[("a", false), ("b", false), ("c", true)]));
    assert_eq!(records.document_snapshot().unwrap().documents.len(), 3);
    records.delete_project(&shop, None, at(5)).unwrap();
    let remaining = records.document_snapshot().unwrap().documents;
    assert!(
        remaining.iter().all(|one| one.project.is_none()) && remaining.len() == 2,
        "{remaining:?}"
    );
}

fn documents_come_in_pages(backend: Backend) {
    let store = backend.fresh();
    let records = store.records();
    let image = DocumentWrite { kind: "image", ..service("z", Some("1")) };
    let writes = [service("b", Some("1")), image, service("a", Some("1"))];
    write(&records, None, &writes, 1).unwrap();
    let page = |filter: DocumentFilter<'_>, limit| -> Vec<String> {
        let found = records.list_documents(&filter, limit).unwrap();
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
