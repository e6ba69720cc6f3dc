//! What commands against a server promise in detail: what they ask, refuse, shorten and do not claim.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::server_commands::{World, fails, prints};

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<()>| {
        Trial::test(format!("server_details/{name}"), move || {
            Ok(run().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("long_values_are_cut_in_tables", long_values),
        trial("a_deploy_that_nobody_took_up_claims_nothing", nobody_takes_it_up),
        trial("a_paused_agent_is_told_of_and_claims_nothing", paused_agent),
        trial("the_documented_token_can_export", documented_token),
        trial("what_cannot_be_undone_asks", asks_first),
    ]
}

impl World {
    fn json(&self, line: &str) -> Result<Value> {
        let text = self.done(&format!("{line} --json 2> /dev/null"))?;
        serde_json::from_str(&text).with_context(|| format!("{line}: {text}"))
    }

    fn first_resource(&self) -> Result<String> {
        let found = self.json("orrery resources")?;
        Ok(found["resources"][0]["id"].as_str().context("no resource")?.to_owned())
    }

    /// Writes a project with files of these contents, named after their places in the list.
    fn write_project(&self, contents: &[&str]) -> Result<()> {
        let home = self.directory.path().canonicalize()?;
        if !home.join("model").exists() {
            self.done("orrery new model")?;
        }
        let mut model = "host = std::Host(name=\"localhost\", os=std::linux)\n".to_owned();
        let owner = self.done("id -un")?;
        let group = self.done("id -gn")?;
        for (at, content) in contents.iter().enumerate() {
            let _ = writeln!(
                model,
                "std::File(host=host, path=\"{}/{at}.txt\", mode=644, owner=\"{}\", group=\"{}\", content=\"{content}\")",
                home.display(),
                owner.trim(),
                group.trim(),
            );
        }
        Ok(std::fs::write(home.join("model/main.cf"), model)?)
    }

    /// Runs a command until it says something, interrupts it, and answers what it said and how it ended.
    fn interrupted(&self, command: &str, at: &str) -> Result<(String, String)> {
        let script = format!(
            "{command} > out.txt 2> err.txt & it=$!; \
             for i in $(seq 300); do grep -q {at:?} err.txt && break; sleep 0.05; done; \
             kill -INT $it; wait $it; echo $?",
        );
        // A shell without job control would have it ignore Ctrl-C.
        let (code, _) = self.run(&format!("bash -c 'set -m; {script}'"))?;
        let said = self.done("cat err.txt")?;
        ensure!(code.trim().ends_with('1'), "{code}: {said}");
        Ok((self.done("cat out.txt")?, said))
    }
}

fn long_values() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("")?;
    world.write_project(&["one"])?;
    world.done("cd model && orrery deploy")?;
    let long = "a".repeat(100_000);
    std::fs::write(world.directory.path().join("long"), &long)?;
    world.done("orrery param set big $(cat long)")?;
    prints(&world, "orrery param list", &["aaa… (100,000 characters)", "1 parameter"])?;
    let id = world.first_resource()?;
    world.done(&format!("orrery fact set '{id}' size $(cat long)"))?;
    prints(&world, "orrery fact list", &["aaa… (100,000 characters)", "1 fact"])?;
    prints(&world, "orrery facts", &["aaa… (100,002 characters)", "1 fact"])?;
    ensure!(world.json("orrery param get big")?["value"] == long, "the value is cut");
    let refused = format!("cd model && orrery export --message {}", "a".repeat(1001));
    fails(&world, &refused, &["--message", "1001 characters; 1000 is the most"])?;
    world.done(&format!("cd model && orrery export -d --message {}", "a".repeat(1000)))?;
    for command in ["orrery versions", "orrery version list", "orrery status || true"] {
        prints(&world, command, &["aaa… (1,000 characters)"])?;
    }
    Ok(())
}

fn nobody_takes_it_up() -> Result<()> {
    let mut world = World::new(true)?;
    world.settle("")?;
    world.write_project(&["one", "two"])?;
    world.done("cd model && orrery deploy")?;
    // From now on there is an API, but nobody who works.
    world.start(false, "--role api")?;
    world.write_project(&["another", "two"])?;
    let note = "no server with the role process";
    let (_, said) = world.interrupted("orrery deploy --project model", note)?;
    ensure!(said.contains("the server goes on without you"), "{said}");
    ensure!(said.contains("stopped: 2 stopped in"), "{said}");
    ensure!(!said.contains("as wanted") && !said.contains("updated"), "{said}");
    let (out, _) = world.interrupted("orrery repair --json", note)?;
    let report: Value = serde_json::from_str(&out)?;
    ensure!(report["interrupted"] == true, "{report}");
    ensure!(report["tally"]["stopped"] == 2 && report["tally"]["deployed"] == 0, "{report}");
    let (text, _) = world.run("orrery status")?;
    ensure!(text.contains("waiting for the engine"), "{text}");
    Ok(())
}

fn paused_agent() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("")?;
    // The run before the last one changed something, the last one nothing.
    for content in ["one", "two"] {
        world.write_project(&[content, "same"])?;
        world.done("cd model && orrery deploy")?;
    }
    world.done("orrery agent pause localhost")?;
    world.write_project(&["three", "same"])?;
    let note = "waits for paused agents: localhost";
    let (_, said) = world.interrupted("orrery deploy --project model", note)?;
    ensure!(said.contains("stopped: 2 stopped in"), "{said}");
    for word in ["updated", "as wanted", "std::File"] {
        ensure!(!said.contains(word), "{word}: {said}");
    }
    let (text, _) = world.run("orrery status")?;
    ensure!(text.contains(note), "{text}");
    let (out, _) = world.interrupted("orrery deploy --project model --json", note)?;
    let report: Value = serde_json::from_str(&out)?;
    ensure!(report["resources"] == serde_json::json!([]), "{report}");
    ensure!(report["tally"]["stopped"] == 2, "{report}");
    // Nothing was held up but the wait.
    world.done("orrery agent unpause localhost")?;
    prints(&world, "cd model && orrery deploy", &["2 resources"])?;
    ensure!(std::fs::read_to_string(world.directory.path().join("0.txt"))? == "three");
    Ok(())
}

/// The line of the guide that makes a token for `orrery export`.
fn documented_token() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("")?;
    world.write_project(&["one"])?;
    let root = xtask::repository_root();
    let page = std::fs::read_to_string(root.join("docs/guide/server-accounts.md"))?;
    let line = page.lines().find_map(|line| line.strip_prefix("$ orrery token create ci"));
    let line = line.context("the page has such a line")?;
    let token = world.done(&format!("orrery token create ci {line} 2> /dev/null"))?;
    let id = world.json("orrery environment show")?["id"].as_str().context("no id")?.to_owned();
    let url = world.url()?.to_owned();
    let with = |token: &str, environment: &str, command: &str| {
        let token = token.trim();
        format!(
            "cd model && ORRERY_CONTEXTS=/dev/null ORRERY_SERVER={url} ORRERY_TOKEN={token} \
             ORRERY_ENVIRONMENT={environment} {command}"
        )
    };
    for environment in ["shop/live", &id] {
        prints(&world, &with(&token, environment, "orrery export"), &["stored version"])?;
    }
    // With an id, nothing but what is asked for has to be allowed.
    let eyes = "orrery token create eyes --verbs GET --groups versions 2> /dev/null";
    let eyes = world.done(eyes)?;
    prints(&world, &with(&eyes, &id, "orrery versions"), &["2 versions"])?;
    let refused = with(&eyes, "shop/live", "orrery versions");
    fails(&world, &refused, &["environments, which the token lacks"])
}

fn asks_first() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("")?;
    world.write_project(&["one"])?;
    for _ in 0..2 {
        world.done("cd model && orrery export --no-release")?;
    }
    world.done("orrery param set season summer && orrery secret set db-password")?;
    world.done("orrery token create ci")?;
    world.done("cd model && orrery deploy")?;
    let id = world.first_resource()?;
    world.done(&format!("orrery fact set '{id}' size 12"))?;
    let fact = format!("fact delete '{id}' size");
    let commands = [
        "secret delete db-password",
        "param delete season",
        &fact,
        "version delete 1",
        "token revoke ci",
    ];
    for command in commands {
        let line = format!("orrery {command}");
        fails(&world, &format!("{line} < /dev/null"), &["this cannot be undone", "--yes"])?;
        world.done(&format!("{line} --yes < /dev/null"))?;
        // It was there until then.
        fails(&world, &format!("{line} --yes < /dev/null"), &[])?;
    }
    fails(&world, "orrery agent revoke web1 < /dev/null", &["this cannot be undone", "--yes"])
}
