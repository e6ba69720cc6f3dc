//! Examples of resource types in the guide: each is planned, and those within a scratch directory
//! are deployed.

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;

use crate::scratch_project::ScratchProject;

const PAGE: &str = include_str!("../../../../docs/guide/resources.md");

/// Types that need tools or servers which a test machine may lack.
const NEEDS_TOOLS: [&str; 3] = ["http::Request", "std::Package", "std::Service"];

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |(entity, example): (&'static str, &'static str)| {
        Trial::test(format!("resource_examples: {entity}"), move || {
            Ok(plan_and_deploy(entity, example).map_err(|error| format!("{error:#}"))?)
        })
    };
    let all = Trial::test("resource_examples: every type has one", || {
        let found: Vec<&str> = examples().map(|(entity, _)| entity).collect();
        let registry = orrery_handlers::Registry::native();
        let declared: Vec<&str> = registry.declarations().map(|one| &*one.entity).collect();
        if found == declared { Ok(()) } else { Err(format!("{found:?}, {declared:?}").into()) }
    });
    examples().map(trial).chain([all]).collect()
}

/// Entities with their examples on the page.
fn examples() -> impl Iterator<Item = (&'static str, &'static str)> {
    PAGE.split("\n## `").skip(1).filter_map(|section| {
        let (entity, rest) = section.split_once('`')?;
        let (_, rest) = rest.split_once("```inmanta\n")?;
        let (example, _) = rest.split_once("```")?;
        entity.contains("::").then_some((entity, example))
    })
}

fn plan_and_deploy(entity: &str, example: &str) -> Result<()> {
    let project = ScratchProject::new("")?;
    let scratch = format!("{}/", project.managed("").display().to_string().trim_end_matches('/'));
    project.write("main.cf", &example.replace("/tmp/", &scratch))?;
    let ran = project.run(&["plan", "--json"])?;
    ensure!(matches!(ran.code, Some(0 | 2)), "{:?}: {}", ran.code, ran.said);
    let plan: serde_json::Value = serde_json::from_str(&ran.out).context(ran.out.clone())?;
    let (counts, entries) = (&plan["counts"], plan["resources"].as_array().context("resources")?);
    ensure!(counts["left_out"] == 0 && counts["unavailable"] == 0, "{plan}");
    let begins = format!("{entity}[");
    let is_own =
        |one: &serde_json::Value| one["id"].as_str().is_some_and(|id| id.starts_with(&begins));
    let is_planned = entries.iter().any(is_own) || counts["unchanged"] != 0;
    ensure!(is_planned, "{plan}");
    if !NEEDS_TOOLS.contains(&entity) {
        ensure!(counts["unclear"] == 0, "{plan}");
    }
    let is_harmless = example.contains("/tmp/") || entity.starts_with("std::testing::");
    if is_harmless {
        project.expect(0, &["deploy"])?;
        let again = project.expect(0, &["deploy"])?;
        // Commands without conditions run each time.
        if !example.contains("outcome=\"changed\"") {
            again.says(&["nothing to change"])?;
        }
    }
    Ok(())
}
