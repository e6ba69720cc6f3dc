//! Files, directories and links; and scripted resources.

use std::collections::HashMap;
use std::sync::Arc;

use orrery_handlers::target::{Algorithm, Content, ContentDigest};
use orrery_handlers::{CancelToken, Contents, HandlerError, MemoryTarget, Mode, Target};
use orrery_model::{ChangeKind, OutcomeStatus};
use serde_json::json;

use crate::harness::{Agent, changed, reason, run, text};

const ID: &str = "std::File[a,path=/srv/f]";
const DESIRED: &str = r#"{"content":"new\n","owner":"root","group":"root","mode":644}"#;

fn with(content: Content, mode: u32) -> MemoryTarget {
    let target = MemoryTarget::new();
    target.put("/srv/f", content, mode);
    target
}

#[test]
fn a_changed_text_is_shown_as_it_is() {
    let target = with(Content::File("old\n".into()), 0o644);
    let plan = run(&target, ID, DESIRED, Mode::DryRun);
    let change = &plan.change.attributes[0];
    assert_eq!(
        (&*change.name, &change.current, &change.desired),
        ("content", &json!("old\n"), &json!("new\n"))
    );
}

#[test]
fn private_contents_are_shown_as_digests() {
    for (mode, wanted) in [(0o600, DESIRED.to_owned()), (0o644, DESIRED.replace("644", "640"))] {
        let target = with(Content::File("secret\n".into()), mode);
        let plan = run(&target, ID, &wanted, Mode::DryRun);
        assert_eq!(changed(&plan), ["hash", "mode"]);
        let shown = serde_json::to_string(&plan.change).unwrap();
        assert!(!shown.contains("secret") && !shown.contains("new"), "{shown}");
    }
}

#[test]
fn only_what_differs_is_changed() {
    let target = with(Content::File("new\n".into()), 0o600);
    let outcome = run(&target, ID, DESIRED, Mode::Deploy);
    assert_eq!(changed(&outcome), ["mode"]);
    let nobody_cares = run(&target, ID, r#"{"content":"new\n"}"#, Mode::Deploy);
    assert_eq!(nobody_cares.change.kind, ChangeKind::NoChange);
}

#[test]
fn an_empty_owner_or_group_is_unchanged() {
    let target = with(Content::File("new\n".into()), 0o644);
    let wanted = r#"{"content":"new\n","owner":"","group":"","mode":644}"#;
    let outcome = run(&target, ID, wanted, Mode::Deploy);
    assert_eq!(outcome.change.kind, ChangeKind::NoChange, "{:?}", outcome.log);
    let directory = run(&target, "std::Directory[a,path=/srv/d]", wanted, Mode::Deploy);
    assert_eq!(directory.change.kind, ChangeKind::Created, "{:?}", directory.log);
}

#[test]
fn a_link_at_the_path_is_replaced_and_its_destination_is_unchanged() {
    let target = with(Content::Symlink("/etc/passwd".into()), 0o777);
    let before = text(&target, "/etc/passwd");
    let outcome = run(&target, ID, DESIRED, Mode::Deploy);
    assert_eq!(changed(&outcome), ["type"]);
    assert_eq!(text(&target, "/srv/f"), "new\n");
    assert_eq!(text(&target, "/etc/passwd"), before);

    let target = with(Content::Symlink("/etc/passwd".into()), 0o777);
    let purged = DESIRED.replace('}', r#","purged":true}"#);
    assert_eq!(run(&target, ID, &purged, Mode::Deploy).change.kind, ChangeKind::Purged);
    assert_eq!(target.stat("/srv/f").unwrap(), None);
    assert_eq!(text(&target, "/etc/passwd"), before);
}

#[test]
fn files_of_another_kind_are_an_error_with_a_hint() {
    let hint = |id: &str, wanted: &str, content: Content| {
        let target = with(content.clone(), 0o755);
        let before = target.snapshot();
        let outcome = run(&target, id, wanted, Mode::Deploy);
        assert_eq!(outcome.status, OutcomeStatus::Failed, "{id} {content:?}");
        assert_eq!(target.snapshot(), before);
        outcome.log.last().unwrap().values["hint"].as_str().unwrap().to_owned()
    };
    let directory = r#"{"mode":755,"owner":"root","group":"root"}"#;
    let link = r#"{"source":"/x"}"#;
    assert!(hint(ID, DESIRED, Content::Directory).contains("a directory exists"));
    assert!(hint(ID, DESIRED, Content::Special).contains("by hand"));
    let id = "std::Directory[a,path=/srv/f]";
    assert!(hint(id, directory, Content::File(Vec::new())).contains("std::File"));
    assert!(hint(id, directory, Content::Symlink("/etc".into())).contains("std::Symlink"));
    let id = "std::Symlink[a,target=/srv/f]";
    assert!(hint(id, link, Content::File(Vec::new())).contains("purge"));
}

#[test]
fn a_missing_directory_or_user_has_a_hint() {
    let target = MemoryTarget::new();
    let missing = run(&target, "std::File[a,path=/no/f]", DESIRED, Mode::Deploy);
    assert_eq!(reason(&missing), "cannot write /no/f: its directory does not exist");
    assert!(missing.log[0].values["hint"].as_str().unwrap().contains("std::Directory"));

    let wanted = DESIRED.replace(r#""owner":"root""#, r#""owner":"nobodyknows""#);
    let missing = run(&target, ID, &wanted, Mode::Deploy);
    assert_eq!(reason(&missing), "cannot look up user nobodyknows: there is no such user");
    assert!(missing.log[0].values["hint"].as_str().unwrap().contains("user::User"));
    assert_eq!(target.stat("/srv/f").unwrap(), None);
    // In a plan it may be created before.
    assert_eq!(run(&target, ID, &wanted, Mode::DryRun).change.kind, ChangeKind::Created);
}

#[test]
fn a_directory_is_purged_with_its_content_only_when_asked() {
    let id = "std::Directory[a,path=/srv]";
    let purged = r#"{"mode":755,"owner":"root","group":"root","purged":true}"#;
    let target = with(Content::File(Vec::new()), 0o644);
    let refused = run(&target, id, purged, Mode::Deploy);
    assert_eq!(refused.status, OutcomeStatus::Failed);
    assert!(refused.log[0].values["hint"].as_str().unwrap().contains("purge_content"));
    let asked = purged.replace('}', r#","purge_content":true}"#);
    assert_eq!(run(&target, id, &asked, Mode::Deploy).change.kind, ChangeKind::Purged);
    assert_eq!(target.stat("/srv/f").unwrap(), None);
}

/// Contents by digest, like a store.
struct StoredContents(HashMap<ContentDigest, Arc<[u8]>>);

impl Contents for StoredContents {
    fn content(&self, digest: &ContentDigest) -> Result<Option<Arc<[u8]>>, HandlerError> {
        Ok(self.0.get(digest).cloned())
    }
}

#[test]
fn a_content_can_be_given_by_its_digest() {
    let target = MemoryTarget::new();
    for algorithm in [Algorithm::Md5, Algorithm::Sha1, Algorithm::Sha256] {
        let digest = algorithm.digest(b"stored");
        let stored = StoredContents(HashMap::from([(digest, Arc::from(&b"stored"[..]))]));
        let deploy = |contents: &StoredContents, hash: String| {
            let attributes = json!({"hash": hash}).to_string();
            Agent::new(&target).run_with(ID, &attributes, Mode::Deploy, contents)
        };
        target.remove_file("/srv/f").unwrap();
        assert_eq!(deploy(&stored, digest.to_string()).change.kind, ChangeKind::Created);
        assert_eq!(text(&target, "/srv/f"), "stored");
        // The content is not needed to see that it is unchanged.
        let none = StoredContents(HashMap::new());
        assert_eq!(deploy(&none, digest.to_string()).change.kind, ChangeKind::NoChange);
        let unknown = deploy(&none, algorithm.digest(b"other").to_string());
        assert!(reason(&unknown).contains("is not in the store"), "{}", reason(&unknown));
        assert_eq!(text(&target, "/srv/f"), "stored");
        assert_eq!(deploy(&none, "nonsense".to_owned()).status, OutcomeStatus::Failed);
    }
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    let target = MemoryTarget::new();
    for path in ["relative", "/srv/../etc/passwd", "/"] {
        let outcome = run(&target, &format!("std::File[a,path={path}]"), DESIRED, Mode::Deploy);
        assert_eq!(outcome.status, OutcomeStatus::Failed, "{path}");
    }
}

#[test]
fn a_scripted_resource_has_the_scripted_outcome() {
    let target = MemoryTarget::new();
    let id = "std::testing::ScriptedResource[a,name=x]";
    for (attributes, status, kind) in [
        ("{}", OutcomeStatus::Deployed, ChangeKind::NoChange),
        (r#"{"outcome":"changed"}"#, OutcomeStatus::Deployed, ChangeKind::Updated),
        (r#"{"outcome":"skip"}"#, OutcomeStatus::Skipped, ChangeKind::NoChange),
        (r#"{"outcome":"fail"}"#, OutcomeStatus::Failed, ChangeKind::NoChange),
        (r#"{"fail":true}"#, OutcomeStatus::Failed, ChangeKind::NoChange),
    ] {
        let outcome = run(&target, id, attributes, Mode::Deploy);
        assert_eq!((outcome.status, outcome.change.kind), (status, kind), "{attributes}");
        assert_eq!(run(&target, id, attributes, Mode::DryRun).status, OutcomeStatus::Deployed);
    }
    let facts = run(&target, id, r#"{"facts":{"a":"b"},"delay_ms":1}"#, Mode::Deploy).facts;
    assert_eq!((&*facts[0].name, &*facts[0].value), ("a", "b"));
    let panics = std::panic::catch_unwind(|| {
        run(&MemoryTarget::new(), id, r#"{"outcome":"panic"}"#, Mode::Deploy)
    });
    assert!(panics.is_err());
}

#[test]
fn a_slow_resource_ends_on_cancellation_or_deadline() {
    let target = MemoryTarget::new();
    let id = "std::testing::ScriptedResource[a,name=x]";
    let mut agent = Agent::new(&target);
    agent.stop = CancelToken::never().within(std::time::Duration::from_millis(30));
    let late = agent.deploy(id, r#"{"delay_ms":60000}"#);
    assert_eq!((late.status, &*reason(&late)), (OutcomeStatus::Failed, "the deadline has passed"));
    assert_eq!(Agent::new(&target).deploy(id, r#"{"delay_ms":1}"#).status, OutcomeStatus::Deployed);
}
