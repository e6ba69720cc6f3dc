//! Users and groups, on a machine in memory with tools that edit its account files.

use orrery_handlers::target::Output;
use orrery_handlers::{MemoryTarget, Mode};
use orrery_model::OutcomeStatus;

use crate::harness::{changed, edits, reason, run, text};

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";

/// The value after an option.
fn option<'c>(words: &'c [String], name: &str) -> Option<&'c str> {
    let at = words.iter().position(|word| word == name)?;
    words.get(at + 1).map(String::as_str)
}

fn gid(groups: &str, name: &str) -> String {
    let line = groups.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap();
    line.split(':').nth(2).unwrap().to_owned()
}

/// Adds a user to the groups of a list.
fn join(target: &MemoryTarget, user: &str, names: &str) {
    let groups: String = text(target, GROUP)
        .lines()
        .map(|line| {
            let (name, members) =
                (line.split(':').next().unwrap(), line.rsplit(':').next().unwrap());
            let joins = names.split(',').any(|other| other == name);
            match (joins && !members.split(',').any(|member| member == user), members) {
                (false, _) => format!("{line}\n"),
                (true, "") => format!("{line}{user}\n"),
                (true, _) => format!("{line},{user}\n"),
            }
        })
        .collect();
    target.put(GROUP, orrery_handlers::target::Content::File(groups.into()), 0o644);
}

fn without(lines: &str, name: &str) -> String {
    lines.split_inclusive('\n').filter(|line| !line.starts_with(&format!("{name}:"))).collect()
}

pub(crate) fn prepare(target: &MemoryTarget) {
    target.on("getent group", |invocation| Output::new(0, &text(invocation.target, GROUP), ""));
    edits(target, "useradd", PASSWD, |passwd, invocation| {
        let words = &invocation.command.arguments;
        let gid = gid(&text(invocation.target, GROUP), option(words, "--gid").unwrap());
        if let Some(groups) = option(words, "--groups") {
            join(invocation.target, invocation.last(), groups);
        }
        let (home, shell) = (option(words, "--home-dir"), option(words, "--shell"));
        format!(
            "{passwd}{}:x:1001:{gid}::{}:{}\n",
            invocation.last(),
            home.unwrap(),
            shell.unwrap()
        )
    });
    edits(target, "usermod", PASSWD, |passwd, invocation| {
        let (words, name) = (&invocation.command.arguments, invocation.last());
        if let Some(groups) = option(words, "--groups") {
            assert!(words.contains(&"--append".to_owned()), "other groups must stay");
            join(invocation.target, name, groups);
        }
        let line = passwd.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap();
        let mut fields: Vec<String> = line.split(':').map(str::to_owned).collect();
        if let Some(group) = option(words, "--gid") {
            fields[3] = gid(&text(invocation.target, GROUP), group);
        }
        for (at, name) in [(5, "--home"), (6, "--shell")] {
            if let Some(value) = option(words, name) {
                fields[at] = value.to_owned();
            }
        }
        format!("{}{}\n", without(passwd, name), fields.join(":"))
    });
    edits(target, "userdel", PASSWD, |passwd, invocation| without(passwd, invocation.last()));
    edits(target, "groupadd", GROUP, |groups, invocation| {
        format!("{groups}{}:x:999:\n", invocation.last())
    });
    edits(target, "groupdel", GROUP, |groups, invocation| without(groups, invocation.last()));
}

#[test]
fn a_user_is_created_with_its_attributes() {
    let target = MemoryTarget::new();
    prepare(&target);
    let wanted = r#"{"group":"adm","groups":["jo","root"],"homedir":"/srv/web","shell":"/bin/sh","system":true}"#;
    let made = run(&target, "user::User[a,name=web]", wanted, Mode::Deploy);
    assert_eq!(made.status, OutcomeStatus::Deployed, "{}", reason(&made));
    assert_eq!((&*made.facts[0].name, &*made.facts[0].value), ("uid", "1001"));
    assert_eq!(
        target.history().iter().find(|line| line.starts_with("useradd")).unwrap(),
        "useradd --gid adm --shell /bin/sh --home-dir /srv/web --groups 'jo,root' --system -- web"
    );
}

#[test]
fn only_what_differs_of_a_user_is_changed() {
    let target = MemoryTarget::new();
    prepare(&target);
    let wanted = r#"{"group":"jo","groups":["adm"],"homedir":"/home/jo","shell":"/bin/sh"}"#;
    let outcome = run(&target, "user::User[a,name=jo]", wanted, Mode::Deploy);
    assert_eq!(changed(&outcome), ["groups"], "{}", reason(&outcome));
    assert_eq!(target.history().last().unwrap(), "usermod --append --groups adm -- jo");
}

#[test]
fn an_unknown_group_fails_with_a_hint_but_not_in_a_plan() {
    let target = MemoryTarget::new();
    prepare(&target);
    let wanted = r#"{"group":"nosuch","homedir":"/home/jo","shell":"/bin/sh"}"#;
    let failed = run(&target, "user::User[a,name=jo]", wanted, Mode::Deploy);
    assert_eq!(failed.status, OutcomeStatus::Failed);
    assert!(failed.log.last().unwrap().values["hint"].as_str().unwrap().contains("user::Group"));
    let plan = run(&target, "user::User[a,name=jo]", wanted, Mode::DryRun);
    assert_eq!(changed(&plan), ["group"]);
}

#[test]
fn names_that_would_break_the_account_files_are_refused() {
    let target = MemoryTarget::new();
    prepare(&target);
    for attributes in [
        r#"{"group":"jo","homedir":"/x:0:0","shell":"/bin/sh"}"#,
        r#"{"group":"a b","homedir":"/x","shell":"/bin/sh"}"#,
        r#"{"group":"jo","groups":["a,b"],"homedir":"/x","shell":"/bin/sh"}"#,
    ] {
        let outcome = run(&target, "user::User[a,name=x]", attributes, Mode::Deploy);
        assert_eq!(outcome.status, OutcomeStatus::Failed, "{attributes}");
    }
    assert!(target.history().is_empty());
}
