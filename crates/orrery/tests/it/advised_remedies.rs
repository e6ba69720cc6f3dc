//! Remedies in a server's messages work: unreleased versions, environments that follow a branch,
//! restricted tokens, and misspelt names.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;

use crate::project_binding::write_project;
use crate::server_commands::{World, fails, prints};

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<()>| {
        Trial::test(format!("advised_remedies/{name}"), move || {
            Ok(run().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("a version that is not released is named", candidates),
        trial("an environment that follows a branch says how to preview and destroy", following),
        trial("a token without a group gets the list of groups", limited_token),
        trial("a setting that is nearly right is suggested", misspelt_setting),
    ]
}

const ONE: &str = "Text(host=host, path=root + \"/a.txt\", content=\"a\")\n";
const OTHER: &str = "Text(host=host, path=root + \"/b.txt\", content=\"b\")\n";

fn candidates() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("")?;
    write_project(&world, "model", ONE)?;
    // Nothing was released yet: the unreleased version is named.
    prints(&world, "cd model && orrery export --no-release", &["orrery version release 1"])?;
    for command in ["status", "why a.txt"] {
        let words = ["no released version yet", "orrery version release 1"];
        fails(&world, &format!("cd model && orrery {command}"), &words)?;
    }
    let text = world.done("cd model && orrery deploy")?;
    ensure!(!text.contains("not released"), "{text}");
    let text = world.done("cd model && orrery status")?;
    ensure!(!text.contains("not released"), "{text}");
    ensure!(world.json("orrery status")?["candidate"].is_null());

    // The next version has another resource instead, and is not released: the first one is still
    // managed.
    write_project(&world, "model", OTHER)?;
    let text = world.done("cd model && orrery export --no-release")?;
    ensure!(!text.contains("no longer managed"), "{text}");
    let number = text.split_once("stored version ").and_then(|(_, rest)| rest.split_once(' '));
    let number = number.map(|(number, _)| number.to_owned()).unwrap_or_default();
    let release = format!("orrery version release {number}");
    ensure!(text.contains(&release), "{text}");
    let told = format!("version {number} is not released");
    let (text, _) = world.run("cd model && orrery status")?;
    ensure!(text.contains(&told) && text.contains(&release), "{text}");
    let (report, _) = world.run("orrery status --json 2> /dev/null")?;
    let report: serde_json::Value = serde_json::from_str(&report)?;
    ensure!(report["candidate"]["number"] == number.parse::<u64>()?, "{report}");
    let text = world.done("cd model && orrery why b.txt")?;
    ensure!(text.contains(&release) && text.contains("not released"), "{text}");
    ensure!(!text.contains("as soon as its turn comes"), "{text}");
    let why = world.json("orrery why b.txt")?;
    ensure!(why["next"][0]["kind"] == "not_released", "{why}");

    // Once it is released, its resource is deployed, and the other one is unmanaged.
    world.done(&format!("{release} --follow"))?;
    let text = world.done("cd model && orrery why b.txt")?;
    ensure!(text.contains("is deployed") && !text.contains("not released"), "{text}");
    prints(&world, "cd model && orrery export", &["1 resource is no longer managed", "/a.txt]"])
}

fn following() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("--allow-local-repositories")?;
    write_project(&world, "model", ONE)?;
    let git = "git init --quiet --initial-branch main && git add --all && git commit --quiet --message One";
    world.done(&format!("cd model && {git}"))?;
    world.done("orrery environment update --repository \"$PWD/model\" --branch main")?;
    world.done("orrery compile request --deploy")?;
    let file = world.directory.path().join("managed/a.txt");
    ensure!(file.exists());

    // Follows the advice for a preview.
    let hold = "orrery environment setting set auto_deploy false";
    for command in ["plan", "deploy", "export"] {
        let words = ["follows", hold, "orrery version dry-run"];
        fails(&world, &format!("cd model && orrery {command}"), &words)?;
    }
    world.done(hold)?;
    write_project(&world, "model", &ONE.replace("\"a\"", "\"changed\""))?;
    world.done("cd model && git commit --quiet --all --message Two")?;
    prints(&world, "orrery compile request --follow", &["version 2"])?;
    let (text, code) = world.run("orrery version dry-run 2")?;
    ensure!(code == 2 && text.contains("1 to update"), "{code}: {text}");
    ensure!(fs::read_to_string(&file)? == "a");

    // Follows the advice for a removal.
    let leave = "orrery environment update --repository ''";
    fails(&world, "cd model && orrery destroy --yes", &["follows", leave, "orrery destroy"])?;
    world.done(leave)?;
    world.done("cd model && orrery destroy --yes")?;
    std::thread::sleep(Duration::from_millis(200));
    ensure!(!file.exists());
    Ok(())
}

fn limited_token() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("")?;
    let url = world.url()?.to_owned();
    let make = "orrery token create ci --verbs GET,POST --groups environments,versions";
    let token = world.done(&format!("{make} 2> /dev/null"))?;
    let with =
        format!("ORRERY_CONTEXTS=/dev/null ORRERY_SERVER={url} ORRERY_TOKEN={}", token.trim());
    let lacks = |line: &str, word: &str| -> Result<()> {
        let words = [word, "which the token lacks", "orrery token create"];
        let (text, code) = world.run(&format!("{with} {line}"))?;
        ensure!(code == 1 && words.iter().all(|word| text.contains(word)), "{code}: {text}");
        ensure!(!text.contains("assign a role"), "{text}");
        Ok(())
    };
    lacks("orrery agent list", "environments, versions")?;
    lacks("orrery version delete 1 --yes", "GET, POST")
}

fn misspelt_setting() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("")?;
    let words = ["there is no setting comit_status", "did you mean commit_status?"];
    fails(&world, "orrery environment setting set comit_status github", &words)?;
    fails(&world, "orrery environment setting get comit_status", &words)
}
