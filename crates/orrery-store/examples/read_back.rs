//! Writes the newest version of a store to standard output, a resource on each line, as JSON, for
//! `bench/deploy` to compare with its input.
//!
//!     read_back STATE.DB

use std::io::Write;

use orrery_store::Store;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: read_back STATE.DB")?;
    let store = Store::open_read_only(path)?;
    let environment = store.environments().ensure_default()?;
    let versions = store.versions().list(environment)?;
    let newest =
        versions.iter().map(|version| version.number).max().ok_or("there is no version")?;
    let version = store.versions().load(environment, newest)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for resource in &version.resources {
        let id = serde_json::Value::from(resource.id.as_str());
        writeln!(out, r#"{{"id":{id},"attributes":{}}}"#, resource.attributes.as_str())?;
    }
    Ok(out.flush()?)
}
