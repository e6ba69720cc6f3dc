//! Callbacks of handler code to a server: unknown facts, parameters, and discovered resources. With
//! the real program, a real repository and real Python handlers.

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::server_kills::{Server, World, git, until};

const MODULE: [(&str, &str); 3] = [
    ("module.yml", include_str!("reporting/module.yml")),
    ("model/_init.cf", include_str!("reporting/model/_init.cf")),
    ("plugins/__init__.py", include_str!("reporting/plugins/__init__.py")),
];

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<()>| {
        Trial::test(format!("server_handlers/{name}"), move || {
            Ok(run().map_err(|error| format!("{error:#}"))?)
        })
    };
    vec![
        trial("unknown_facts_are_asked_for", unknown_facts_are_asked_for),
        trial("facts_that_handlers_set_are_compiled_in_sqlite", || facts_that_handlers_set(false)),
        trial("facts_that_handlers_set_are_compiled_in_postgres", || facts_that_handlers_set(true)),
        trial("parameters_that_handlers_set_are_compiled_for", parameters_that_handlers_set),
        trial(
            "a_handler_changes_only_its_copy_and_logs_what_it_wants",
            a_handler_changes_only_its_copy_and_logs_what_it_wants,
        ),
        trial("what_handlers_discover_is_kept_sqlite", || what_handlers_discover(false)),
        trial("what_handlers_discover_is_kept_postgres", || what_handlers_discover(true)),
    ]
}

/// A server with an environment; its repository has the test module.
pub(crate) struct Scene {
    // Dropped before its database.
    pub(crate) server: Server,
    pub(crate) world: World,
    pub(crate) environment: String,
}

impl Scene {
    fn new(postgres: bool, model: impl Fn(&World) -> String) -> Result<Self> {
        let world = World::new(postgres)?;
        let server = world.start()?;
        Scene::with_module(world, server, ("reporting", &MODULE), model)
    }

    /// The same with another module and a running server.
    pub(crate) fn with_module(
        world: World,
        server: Server,
        (module, files): (&str, &[(&str, &str)]),
        model: impl Fn(&World) -> String,
    ) -> Result<Self> {
        let repository = world.path("repository");
        for (name, text) in files {
            let path = repository.join("libs").join(module).join(name);
            std::fs::create_dir_all(path.parent().context("no directory")?)?;
            std::fs::write(path, text)?;
        }
        std::fs::write(repository.join("project.yml"), "name: test\nmodulepath: libs\n")?;
        std::fs::write(repository.join("main.cf"), model(&world))?;
        git(&repository, &["init", "-q", "-b", "main"])?;
        git(&repository, &["add", "."])?;
        git(&repository, &["commit", "-q", "-m", "start"])?;
        let project = world.create(&server, "/api/v1/projects", &json!({"name": "p"}))?;
        let body = json!({
            "project": project["id"], "name": "e", "repository": repository, "branch": "main",
        });
        let made = world.create(&server, "/api/v1/environments", &body)?;
        let id = made["id"].as_str().context("no id")?;
        let environment = format!("/api/v1/environments/{id}");
        world.create(&server, &format!("{environment}/compiles"), &json!({"update": true}))?;
        Ok(Scene { server, world, environment })
    }

    pub(crate) fn get(&self, path: &str) -> Result<Value> {
        let path = format!("{}/{path}", self.environment);
        let (status, answer) = self.world.call_with(&self.server, "GET", &path, None, "")?;
        ensure!(status == 200, "{path}: {status} {answer}");
        Ok(answer)
    }

    /// Number of compiles with a trigger of this kind.
    pub(crate) fn compiles(&self, kind: &str) -> Result<usize> {
        let all = self.get("compiles")?;
        let all = all["items"].as_array().context("no compiles")?;
        Ok(all.iter().filter(|one| one["metadata"]["type"] == kind).count())
    }

    fn repair(&self) -> Result<()> {
        let path = format!("{}/repair", self.environment);
        let asked = self.world.create(&self.server, &path, &json!({}))?;
        let asked = asked["id"].as_str().context("no id")?.to_owned();
        until("the repair is done", || {
            Ok(self.get(&format!("operations/{asked}"))?["transitioning"] == "no")
        })
    }

    pub(crate) fn until_deployed(&self, count: u64) -> Result<()> {
        until("everything is deployed", || {
            let counts = self.get("resource-counts")?;
            Ok(counts["by_status"]["deployed"].as_u64() == Some(count))
        })
    }
}

/// Handlers get a copy of the desired state.
fn a_handler_changes_only_its_copy_and_logs_what_it_wants() -> Result<()> {
    let model = "import reporting\nreporting::Thing(name=\"one\", tells=\"oddly\", value=\"42\")\n";
    let scene = Scene::new(false, |_| model.to_owned())?;
    scene.until_deployed(1)?;
    scene.repair()?;
    let resource = "resources/reporting::Thing%5Bone,name=one%5D";
    let found = scene.get(resource)?;
    ensure!(found["attributes"]["value"] == "42", "{found}");
    let fact = scene.get(&format!("{resource}/facts/size"))?;
    ensure!(fact["value"] == "42", "the second run got what the first one left: {fact}");
    let logs = scene.get(&format!("{resource}/logs"))?.to_string();
    ensure!(logs.contains("odd <object object"), "{logs}");
    Ok(())
}

/// A model in which the content of a file is a fact.
fn with_fact(world: &World, tells: &str) -> String {
    format!(
        "import std\nimport reporting\nhost = std::Host(name=\"internal\", os=std::linux)\n\
         thing = reporting::Thing(name=\"one\", tells=\"{tells}\", value=\"42\")\n\
         std::ConfigFile(host=host, path=\"{}\", content=std::getfact(thing, \"size\"))\n",
        world.path("size").display()
    )
}

fn until_written(scene: &Scene) -> Result<()> {
    let path = scene.world.path("size");
    until("the fact is deployed", || {
        Ok(std::fs::read_to_string(&path).is_ok_and(|text| text == "42"))
    })?;
    ensure!(scene.compiles("fact")? == 1, "{}", scene.get("compiles")?);
    Ok(())
}

/// The server requests the fact itself.
fn unknown_facts_are_asked_for() -> Result<()> {
    let scene = Scene::new(false, |world| with_fact(world, ""))?;
    until_written(&scene)
}

fn facts_that_handlers_set(postgres: bool) -> Result<()> {
    let scene = Scene::new(postgres, |world| with_fact(world, "fact"))?;
    until_written(&scene)
}

fn parameters_that_handlers_set() -> Result<()> {
    let model =
        "import reporting\nreporting::Thing(name=\"one\", tells=\"parameter\", value=\"42\")\n";
    let scene = Scene::new(false, |_| model.to_owned())?;
    scene.until_deployed(1)?;
    let set = scene.get("parameters/size")?;
    ensure!(set["value"] == "42" && set["expires"] == false, "{set}");
    until("a compile is asked for", || Ok(scene.compiles("param")? == 1))?;
    // An equal value triggers no further compile.
    scene.repair()?;
    ensure!(scene.compiles("param")? == 1, "{}", scene.get("compiles")?);
    Ok(())
}

/// More than fit into one message, and one of them is managed.
fn what_handlers_discover(postgres: bool) -> Result<()> {
    let model = "import reporting\nreporting::Search(name=\"all\", count=1500)\n\
         reporting::Thing(name=\"found0007\")\n";
    let scene = Scene::new(postgres, |_| model.to_owned())?;
    scene.until_deployed(2)?;
    let (mut count, mut after) = (0, String::new());
    loop {
        let page = scene.get(&format!("discovered?limit=1000{after}"))?;
        count += page["items"].as_array().context("no items")?.len();
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    ensure!(count == 1500, "{count} were kept");
    let managed = scene.get("discovered?managed=true")?;
    let managed = managed["items"].as_array().context("no items")?;
    ensure!(managed.len() == 1, "{managed:?}");
    ensure!(managed[0]["id"] == "reporting::Thing[one,name=found0007]", "{managed:?}");
    ensure!(managed[0]["discovery_resource"] == "reporting::Search[one,name=all]", "{managed:?}");
    ensure!(managed[0]["attributes"] == json!({"number": 7}), "{managed:?}");
    Ok(())
}
