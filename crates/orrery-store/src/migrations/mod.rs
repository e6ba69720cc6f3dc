//! Schema migrations, written once in the dialect of SQLite. The schema of PostgreSQL is translated
//! from them.

/// Migrations by number. Released migrations never change.
pub(crate) const MIGRATIONS: [&str; 19] = [
    include_str!("0001_initial.sql"),
    include_str!("0002_server_records.sql"),
    include_str!("0003_idempotency_acted.sql"),
    include_str!("0004_parameter_metadata.sql"),
    include_str!("0005_remote_agents.sql"),
    include_str!("0006_ended_revisions.sql"),
    include_str!("0007_environment_trouble.sql"),
    include_str!("0008_version_by_step.sql"),
    include_str!("0009_followed_branches.sql"),
    include_str!("0010_environment_model_project.sql"),
    include_str!("0011_resource_origin.sql"),
    include_str!("0012_begun_effects.sql"),
    include_str!("0013_familiar_networks.sql"),
    include_str!("0014_content_claims.sql"),
    include_str!("0015_cluster_documents.sql"),
    include_str!("0016_unclaimed_revisions.sql"),
    include_str!("0017_offered_types.sql"),
    include_str!("0018_agent_connections.sql"),
    include_str!("0019_clusters.sql"),
];

pub(crate) const SCHEMA: u32 = MIGRATIONS.len() as u32;
