//! Lookups of models during a compile: the environment, facts and parameters.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::{World, model, text, update};

/// Writes a module of a project.
fn write_module(project: &Path, name: &str, model: &str, code: &str) -> Result<()> {
    let module = project.join("libs").join(name);
    std::fs::create_dir_all(module.join("model"))?;
    std::fs::create_dir_all(module.join("plugins"))?;
    let description = format!("name: {name}\nversion: 1.0\nlicense: x\n");
    std::fs::write(module.join("module.yml"), description)?;
    std::fs::write(module.join("model/_init.cf"), model)?;
    Ok(std::fs::write(module.join("plugins/__init__.py"), code)?)
}

pub(super) fn models_know_where_they_are_compiled_for(world: &mut World) -> Result<()> {
    world.start()?;
    let names = [
        "environment",
        "environment_name",
        "environment_server",
        "server_port",
        "server_ssl",
        "server_ca",
        "server_token",
    ];
    let asked: String = names.iter().map(|name| format!("own_{name} = std::{name}()\n")).collect();
    let shown: Vec<String> = names.iter().map(|name| format!("{{{{own_{name}}}}}")).collect();
    let asking = format!("{asked}{}", model(&format!("\"{}\"", shown.join(" "))));
    let repository = world.repository("model", &asking)?;
    let environment = world.environment(&text(&repository), "main")?;
    world.succeed(&environment, &update())?;
    let id = environment.uuid.uuid();
    let wanted = world.newest_content(&environment)?;
    ensure!(wanted == format!("{id} {} 192.0.2.7 4711 False  ", environment.name), "{wanted}");
    // Module code gets the same values.
    let plugin = "from inmanta.config import Config\nfrom inmanta.plugins import Context, plugin\n\n@plugin\n\
         def own(ctx: Context) -> \"string\":\n    answer = ctx.run_sync(lambda: ctx.get_client().get_environment(id=ctx.get_environment_id()))\n    \
         return ctx.get_environment_id() + \" \" + answer.result[\"environment\"][\"name\"]\n";
    write_module(&repository, "asking", "", plugin)?;
    world.commit(&repository, &format!("import asking\n{}", model("asking::own()")))?;
    world.succeed(&environment, &update())?;
    let wanted = world.newest_content(&environment)?;
    ensure!(wanted == format!("{id} {}", environment.name), "{wanted}");
    Ok(())
}

/// An unknown is named by the exported resource id, so that the resource can be found.
pub(super) fn facts_are_asked_of_what_is_exported(world: &mut World) -> Result<()> {
    world.start()?;
    let asking = "import std::testing\nimport asked\n\nhost = std::Host(name=\"internal\", os=std::linux)\n\
         entity Kind extends std::testing::NullResource:\nend\nimplement Kind using parents\n\
         one = Kind(name=\"one\", agentname=\"internal\")\n\
         two = std::ConfigFile(host=host, path=\"/tmp/asked\", content=\"x\")\n\
         three = std::testing::ScriptedResource(name=\"three\", agentname=\"internal\")\n\
         four = asked::Thing(name=\"four\", host=host)\n\
         std::print([std::getfact(one, \"a\"), std::getfact(two, \"b\"), std::getfact(three, \"c\"), std::getfact(four, \"d\")])\n";
    let repository = world.repository("model", "")?;
    let entities = "entity Thing extends std::Resource:\n    string name\nend\nThing.host [1] -- std::Host\n\
         implement Thing using std::none\n";
    let class = "from inmanta.resources import Resource, resource\n\n@resource(\"asked::Thing\", agent=\"host.name\", id_attribute=\"name\")\n\
         class Thing(Resource):\n    fields = (\"name\",)\n";
    write_module(&repository, "asked", entities, class)?;
    world.commit(&repository, asking)?;
    let environment = world.environment(&text(&repository), "main")?;
    let done = world.succeed(&environment, &update())?;
    let number = done.version.context("a version")?;
    let unknowns = world.store().versions().unknowns(environment.key, number)?;
    let mut asked: Vec<String> = unknowns
        .iter()
        .filter_map(|(of, _)| Some(format!("{} {}", of.name, of.resource.as_ref()?)))
        .collect();
    asked.sort();
    let wanted = [
        "a std::testing::NullResource[internal,name=one]",
        "b std::ConfigFile[internal,path=/tmp/asked]",
        "c std::testing::ScriptedResource[internal,name=three]",
        "d asked::Thing[internal,name=four]",
    ];
    ensure!(asked == wanted, "{asked:?}");
    let version = world.store().versions().load(environment.key, number)?;
    for name in wanted {
        let (_, id) = name.split_once(' ').context("an id")?;
        ensure!(version.resources.iter().any(|one| one.id.as_str() == id), "{id}");
    }
    Ok(())
}

/// pip settings of the project apply where handlers run.
pub(super) fn settings_of_pip_travel_with_the_code(world: &mut World) -> Result<()> {
    world.start()?;
    let repository = world.repository("model", "")?;
    let entities = "entity Thing extends std::Resource:\n    string name\n    string agent = \"one\"\nend\n\
         implement Thing using std::none\n";
    let code = "from inmanta.agent.handler import CRUDHandler, provider\nfrom inmanta.resources import Resource, resource\n\n\
         @resource(\"coded::Thing\", agent=\"agent\", id_attribute=\"name\")\nclass Thing(Resource):\n    fields = (\"name\",)\n\n\
         @provider(\"coded::Thing\", name=\"thing\")\nclass ThingHandler(CRUDHandler):\n    pass\n";
    write_module(&repository, "coded", entities, code)?;
    let description = "name: test\nmodulepath: libs\npip:\n  index-url: https://index.example/simple\n  \
         extra-index-url: [https://more.example]\n  pre: true\n  use-system-config: true\n";
    std::fs::write(repository.join("project.yml"), description)?;
    world.commit(&repository, "import coded\ncoded::Thing(name=\"one\")\n")?;
    let environment = world.environment(&text(&repository), "main")?;
    let done = world.succeed(&environment, &update())?;
    let versions = world.store().versions().list(environment.key)?;
    let version = versions.iter().find(|one| Some(one.number) == done.version);
    let code = version.context("a version")?.info["code"].as_str().context("code")?.to_owned();
    let mut hash = [0; 20];
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&code[2 * at..2 * at + 2], 16)?;
    }
    let bundle =
        world.store().contents().get(&orrery_store::ContentHash(hash))?.context("a bundle")?;
    let bundle: serde_json::Value = serde_json::from_slice(&bundle)?;
    let wanted = serde_json::json!({
        "index-url": "https://index.example/simple",
        "extra-index-url": ["https://more.example"],
        "pre": true,
        "use-system-config": true,
    });
    ensure!(bundle["set"]["pip"] == wanted, "{bundle}");
    ensure!(bundle["set"]["handlers"] == serde_json::json!(["coded::Thing"]), "{bundle}");
    Ok(())
}
