//! What a server's messages promise and advise is so: environments that follow a branch, tokens with
//! limits, and names that are nearly right.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;

use crate::right_project::write_project;
use crate::server_commands::{World, fails, prints};

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<()>| {
        Trial::test(format!("true_remedies/{name}"), move || {
            Ok(run().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("an environment that follows a branch says how to preview and destroy", following),
        trial("a token without a group is told of its groups", limited_token),
        trial("a setting that is nearly right is suggested", misspelt_setting),
    ]
}

const ONE: &str = "Text(host=host, path=root + \"/a.txt\", content=\"a\")\n";

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

    // The advice on a preview, followed.
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

    // The advice on a removal, followed.
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
        ensure!(!text.contains("give you a role"), "{text}");
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
