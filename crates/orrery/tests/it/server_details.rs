//! Details of commands against a server: requests, rejections, abbreviations and claims.

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
        trial("an_unclaimed_deploy_claims_nothing", an_unclaimed_request_waits),
        trial("a_paused_agent_is_reported_and_claims_nothing", paused_agent),
        trial("the_documented_token_can_export", documented_token),
        trial("what_cannot_be_undone_asks", asks_first),
        trial("what_is_not_as_wanted_can_be_tried_again", only_pending),
        trial("a_selection_of_nothing_is_a_mistake", nothing_selected),
        trial("what_is_no_longer_wanted_makes_no_name_ambiguous", orphans),
        trial("versions_tell_what_they_are_about", reported_versions),
        trial("an_unknown_resource_set_is_reported", unknown_set),
        trial("the_audit_log_can_be_searched", searched_audit),
        trial("what_is_not_known_is_named", named_unknowns),
        trial("accounts_notifications_and_environments", smaller_commands),
        trial("refusals_say_what_is_the_matter", refusals),
    ]
}

impl World {
    pub(crate) fn json(&self, line: &str) -> Result<Value> {
        let text = self.done(&format!("{line} --json 2> /dev/null"))?;
        serde_json::from_str(&text).with_context(|| format!("{line}: {text}"))
    }

    fn first_resource(&self) -> Result<String> {
        let found = self.json("orrery resources")?;
        Ok(found["resources"][0]["id"].as_str().context("no resource")?.to_owned())
    }

    /// Writes a project with files of these contents, named by index.
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

    /// Runs a command until it prints something, interrupts it, and returns its output and exit
    /// code.
    fn interrupted(&self, command: &str, at: &str) -> Result<(String, String)> {
        let script = format!(
            "rm -f out.txt err.txt; {command} > out.txt 2> err.txt & it=$!; \
             for i in $(seq 300); do grep -qs {at:?} err.txt && break; sleep 0.05; done; \
             kill -INT $it; wait $it; echo $?",
        );
        // Earlier output must not match. A shell without job control would make the command ignore
        // Ctrl-C.
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
    fails(&world, &refused, &["--message", "1001 characters, at most 1000 allowed"])?;
    world.done(&format!("cd model && orrery export -d --message {}", "a".repeat(1000)))?;
    for command in ["orrery versions", "orrery version list", "orrery status || true"] {
        prints(&world, command, &["aaa… (1,000 characters)"])?;
    }
    Ok(())
}

fn an_unclaimed_request_waits() -> Result<()> {
    let mut world = World::new(true)?;
    world.settle("")?;
    world.write_project(&["one", "two"])?;
    world.done("cd model && orrery deploy")?;
    // From now on there is an API, but no process role.
    world.start(false, "--role api")?;
    world.write_project(&["another", "two"])?;
    let note = "no server with the role process";
    let (_, said) = world.interrupted("orrery deploy --project model", note)?;
    ensure!(said.contains("the server continues"), "{said}");
    ensure!(said.contains("stopped: 2 stopped in"), "{said}");
    ensure!(!said.contains("unchanged") && !said.contains("updated"), "{said}");
    let (_, said) = world.interrupted("orrery version roll-back 1 --follow", note)?;
    ensure!(said.contains("stopped: 2 stopped in"), "{said}");
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
    // The last but one run changed something, the last one nothing.
    for content in ["one", "two"] {
        world.write_project(&[content, "same"])?;
        world.done("cd model && orrery deploy")?;
    }
    world.done("orrery agent pause localhost")?;
    world.write_project(&["three", "same"])?;
    let note = "waits for paused agents: localhost";
    let (_, said) = world.interrupted("orrery deploy --project model", note)?;
    ensure!(said.contains("stopped: 2 stopped in"), "{said}");
    for word in ["updated", "unchanged", "std::File"] {
        ensure!(!said.contains(word), "{word}: {said}");
    }
    let (text, _) = world.run("orrery status")?;
    ensure!(text.contains(note), "{text}");
    let (out, _) = world.interrupted("orrery deploy --project model --json", note)?;
    let report: Value = serde_json::from_str(&out)?;
    ensure!(report["resources"] == serde_json::json!([]), "{report}");
    ensure!(report["tally"]["stopped"] == 2, "{report}");
    // Resources that a rollback does not change do not run.
    let (_, said) = world.interrupted("orrery version roll-back 1 --follow", note)?;
    ensure!(said.contains("stopped: 1 stopped, 1 unchanged in"), "{said}");
    ensure!(!said.contains("updated") && !said.contains("std::File"), "{said}");
    // Only the wait ended.
    world.done("orrery agent unpause localhost")?;
    prints(&world, "cd model && orrery deploy", &["2 resources"])?;
    ensure!(std::fs::read_to_string(world.directory.path().join("0.txt"))? == "three");
    Ok(())
}

/// The guide's command that creates a token for `orrery export`.
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
    // With an id, no further right is needed.
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
        // It existed until then.
        fails(&world, &format!("{line} --yes < /dev/null"), &[])?;
    }
    fails(&world, "orrery agent revoke web1 < /dev/null", &["this cannot be undone", "--yes"])
}

/// A command that fails until a file exists, and one that does not; each records its runs.
fn only_pending() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("")?;
    world.done("orrery new model")?;
    let home = world.directory.path().canonicalize()?;
    let model = format!(
        "import exec\nhost = std::Host(name=\"localhost\", os=std::linux)\n\
         exec::Run(host=host, command=\"sh -c 'echo good >> {0}/log'\")\n\
         exec::Run(host=host, command=\"sh -c 'echo bad >> {0}/log; test -e {0}/mended'\")\n",
        home.display(),
    );
    std::fs::write(home.join("model/main.cf"), model)?;
    for place in ["", "--local"] {
        let _ = std::fs::remove_file(home.join("mended"));
        std::fs::write(home.join("log"), "")?;
        let run = |command: &str| world.run(&format!("cd model && orrery {command} {place}"));
        let (text, code) = run("deploy")?;
        ensure!(code == 2, "{code}: {text}");
        std::fs::write(home.join("mended"), "")?;
        let (text, code) = run("repair --pending")?;
        ensure!(code == 0, "{code}: {text}");
        let log = std::fs::read_to_string(home.join("log"))?;
        let runs = |word: &str| log.lines().filter(|line| *line == word).count();
        ensure!((runs("good"), runs("bad")) == (1, 2), "{place}: {log}");
    }
    fails(&world, "cd model && orrery deploy --filter exec", &["repair", "--pending"])
}

fn nothing_selected() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("")?;
    world.write_project(&["one"])?;
    let wrong = ["--filter nosuch", "--agent nosuch"];
    for selection in wrong {
        for command in ["plan", "plan --local", "deploy --local", "deploy --local --json"] {
            let line = format!("cd model && orrery {command} {selection}");
            fails(&world, &line, &["no resource selected", "--filter"])?;
        }
    }
    prints(&world, "orrery version list", &["0 versions"])?;
    ensure!(!world.directory.path().join("0.txt").exists());
    prints(&world, "cd model && orrery deploy --local --filter 0.txt", &["1 created"])
}

fn orphans() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("")?;
    for place in ["", "--local"] {
        world.write_project(&["one", "two"])?;
        let main = world.directory.path().join("model/main.cf");
        let before = std::fs::read_to_string(&main)?;
        let deploy = format!("cd model && orrery deploy {place}");
        world.done(&deploy)?;
        std::fs::write(&main, before.replace("0.txt", "moved/0.txt"))?;
        world.done("mkdir -p moved")?;
        world.done(&deploy)?;
        for command in ["why", "log"] {
            let line = format!("cd model && orrery {command} 0.txt {place}");
            prints(&world, &line, &["moved/0.txt"])?;
        }
        // If nothing else matches, it is used.
        std::fs::write(&main, before.replace("0.txt", "2.txt"))?;
        world.done(&deploy)?;
        let line = format!("cd model && orrery why moved/0.txt {place}");
        prints(&world, &line, &["orphaned"])?;
    }
    Ok(())
}

fn reported_versions() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("")?;
    world.write_project(&["one"])?;
    world.done("cd model && orrery deploy --message 'the first one'")?;
    world.write_project(&["two", "three"])?;
    world.done("cd model && orrery export -d -m ''")?;
    prints(&world, "orrery versions", &["the first one"])?;
    world.done("orrery version roll-back 1")?;
    world.done("orrery version roll-back 2")?;
    for command in ["orrery versions", "orrery version list"] {
        prints(&world, command, &["rolled back to 1: the first one", "rolled back to 2\n"])?;
    }
    prints(&world, "orrery version show 3", &["rolled back to 1: the first one"])?;
    ensure!(world.json("orrery versions")?["versions"][0]["rolled_back_to"] == 2);
    // Both commands agree.
    for options in ["", "--short", "--json"] {
        let (compare, code) = world.run(&format!("orrery version compare 1 2 {options}"))?;
        let (diff, _) = world.run(&format!("orrery diff 1 2 {options}"))?;
        ensure!(code == 2 && compare == diff, "{code}:\n{compare}\n{diff}");
        ensure!(compare.contains("1.txt"), "{compare}");
    }
    prints(&world, "orrery version compare 1 3", &["version 3 is equal to version 1"])?;
    fails(&world, "orrery version compare 1 9", &["9"])
}

fn unknown_set() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("")?;
    world.write_project(&["one"])?;
    world.done("cd model && orrery export")?;
    let line = "cd model && orrery export --partial --delete-resource-set nosuch";
    prints(&world, line, &["warning: no resource set nosuch"])
}

fn searched_audit() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("")?;
    world.done("orrery param set season summer && orrery user create bob")?;
    let count = |options: &str| -> Result<usize> {
        let found = world.json(&format!("orrery audit list {options}"))?;
        Ok(found["items"].as_array().context("no list")?.len())
    };
    let all = count("")?;
    ensure!(count("--actor admin")? == count("--actor user:admin")? && count("--actor bob")? == 0);
    let here = count("--in-environment shop/live")?;
    ensure!(here > 0 && here < all, "{here} of {all}");
    ensure!(count("--action 'POST /api/v1/users'")? == 1);
    ensure!(count("--since 2020-01-01 --until 2999-01-01T00:00:00Z")? == all);
    ensure!(count("--until 2020-01-01")? == 0);
    fails(&world, "orrery audit list --since tomorrow", &["since"])?;
    fails(&world, "orrery audit verify --entry 1 --hash abc", &["64 hexadecimal digits"])
}

fn named_unknowns() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("")?;
    world.write_project(&["one"])?;
    let main = world.directory.path().join("model/main.cf");
    let model = std::fs::read_to_string(&main)?;
    let model = model.replace("\nstd::File(", "\nfile = std::File(");
    let other = model.lines().nth(1).context("no file")?.replace("file = ", "");
    let other = other
        .replace("0.txt", "1.txt")
        .replace("content=\"one\"", "content=std::getfact(file, \"color\")");
    std::fs::write(&main, format!("{model}{other}\n"))?;
    let (text, code) = world.run("cd model && orrery deploy")?;
    ensure!(code == 2 && text.contains("1 undefined"), "{code}: {text}");
    let words = ["unknown: content\n", "version 1 had no value for color of std::File["];
    prints(&world, "orrery why 1.txt", &words)?;
    world.run("cd model && orrery deploy --local")?;
    let words = [words[0], "version 1 had no value for a fact of std::File["];
    prints(&world, "cd model && orrery why 1.txt --local", &words)?;
    let id = world.first_resource()?;
    // Without a repository nothing is compiled; the request is still accepted.
    let set = format!("orrery fact set '{id}' color green --recompile --json");
    let (text, _) = world.run(&set)?;
    ensure!(text.contains("green") || text.contains("repository"), "{text}");
    Ok(())
}

fn smaller_commands() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("")?;
    world.done("orrery user create bob")?;
    world.done("orrery user create eve")?;
    world.done("orrery user role add bob operator --in-project shop")?;
    world.done("orrery user role add eve viewer")?;
    prints(&world, "orrery user show bob", &["bob", "active", "operator project shop"])?;
    ensure!(world.json("orrery user show bob")?["roles"][0]["role"] == "operator");
    let roles = world.done("orrery user role list bob")?;
    ensure!(roles.contains("operator") && !roles.contains("eve"), "{roles}");
    prints(&world, "orrery notification clear --all", &["0 notifications cleared"])?;
    world.done("orrery project create spare")?;
    let icon = "data:image/png;base64,iVBORw0KGgo=";
    let update = format!("orrery environment update --project spare --icon '{icon}'");
    prints(&world, &update, &["spare/live"])?;
    ensure!(world.json("orrery environment show spare/live")?["icon"] == icon);
    world.done("orrery token create twice && orrery token create twice")?;
    fails(&world, "orrery token revoke twice --yes", &["several tokens", "created 20", "by its id"])
}

fn refusals() -> Result<()> {
    let mut world = World::new(false)?;
    world.settle("")?;
    // Protected settings apply to administrators, too.
    world.done("orrery environment setting set protected_environment true")?;
    let (text, code) = world.run("orrery environment delete --yes")?;
    ensure!(code == 1 && text.contains("protected"), "{text}");
    ensure!(!text.contains("assign a role"), "{text}");
    let token = world.done("orrery token create eyes 2> /dev/null")?;
    let url = world.url()?.to_owned();
    let with =
        format!("env -u ORRERY_ENVIRONMENT ORRERY_SERVER={url} ORRERY_TOKEN={}", token.trim());
    world.done("orrery environment use shop/live")?;
    prints(
        &world,
        &format!("{with} orrery param list"),
        &["using shop/live, the default environment of context"],
    )?;
    let (text, _) = world.run(&format!("{with} orrery project list"))?;
    ensure!(!text.contains("the default environment of context"), "{text}");
    prints(&world, "orrery logout", &["logged out of"])?;
    prints(&world, "orrery logout", &["not logged in to"])?;
    let (text, code) = world.run("orrery project list")?;
    ensure!(code == 1 && text.contains("not logged in to"), "{text}");
    ensure!(!text.contains("Bearer"), "{text}");
    world.start(false, "--tls self-signed")?;
    let remedy = format!("help: use {}", url.replace("http://", "https://"));
    fails(&world, &format!("orrery project list --server {url}"), &[&remedy])
}
