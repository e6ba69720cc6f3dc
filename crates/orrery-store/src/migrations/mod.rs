//! The schema, step by step, written once: as SQLite understands it. PostgreSQL's is translated from it.

/// Each brings the schema one number higher. Those that were released never change.
pub(crate) const MIGRATIONS: [&str; 15] = [
    include_str!("0001_start.sql"),
    include_str!("0002_server.sql"),
    include_str!("0003_safety.sql"),
    include_str!("0004_metadata.sql"),
    include_str!("0005_gateway.sql"),
    include_str!("0006_heads.sql"),
    include_str!("0007_trouble.sql"),
    include_str!("0008_newest.sql"),
    include_str!("0009_following.sql"),
    include_str!("0010_model_project.sql"),
    include_str!("0011_origin.sql"),
    include_str!("0012_begun.sql"),
    include_str!("0013_familiar.sql"),
    include_str!("0014_contents.sql"),
    include_str!("0018_cluster_documents.sql"),
];

pub(crate) const SCHEMA: u32 = MIGRATIONS.len() as u32;
