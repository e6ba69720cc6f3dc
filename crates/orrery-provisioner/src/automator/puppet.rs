//! Automator `puppet`: `puppet apply` of a manifest on the node.

use super::shell::{put_file, run_with_task_data};
use crate::plugin::{
    ActionOutput, ActionRun, FieldFormat, FieldSchema, PluginError, PluginKind, PluginManifest,
    ResourceFormat, ServiceAutomator,
};
use crate::task::TaskAction;

/// Runs Puppet with the variables of scripts as facts. Argument: the manifest.
///
/// Code 2 says that resources were changed.
const APPLY: &str = r#"
if ! command -v puppet >/dev/null; then
    echo "puppet is not installed on the node: install the package puppet-agent" >&2
    exit 127
fi
for name in $(env | sed -n 's/^ORRERY_\([A-Z0-9_]*\)=.*/\1/p'); do
    fact=FACTER_orrery_$(echo "$name" | tr A-Z a-z)
    eval "export $fact=\"\$ORRERY_$name\""
done
puppet apply --detailed-exitcodes --color=false "#;

/// Manifests of Puppet.
#[derive(Debug)]
pub struct PuppetAutomator {
    manifest: PluginManifest,
}

impl Default for PuppetAutomator {
    fn default() -> Self {
        PuppetAutomator::new()
    }
}

impl PuppetAutomator {
    pub fn new() -> Self {
        let manifest = PluginManifest::new(
            PluginKind::Automator,
            "puppet",
            "Puppet",
            "Applies a manifest of Puppet on the node.",
        )
        .field(
            "manifest",
            FieldSchema::new("Manifest", FieldFormat::Text, "Name of an uploaded manifest."),
        )
        .requires(&["manifest"])
        .resource_type("manifests", ResourceFormat::File, None);
        PuppetAutomator { manifest }
    }
}

impl ServiceAutomator for PuppetAutomator {
    fn manifest(&self) -> &PluginManifest {
        &self.manifest
    }

    fn run(&self, run: &ActionRun<'_>) -> Result<ActionOutput, PluginError> {
        if run.action == TaskAction::Bootstrap {
            // A service may install Puppet, so it need not be there yet.
            return Ok(ActionOutput::default());
        }
        let name = run.fields.text("manifest").unwrap_or_default();
        let path = put_file(run, "manifests", &name, 0o600)?;
        let path = shlex::try_quote(&path)
            .map_err(|error| PluginError::new(format!("manifest {name}: {error}")))?;
        let line = format!("{APPLY}{path}\nstatus=$?; [ $status -ne 2 ] || status=0; exit $status");
        run_with_task_data(run, &format!("manifest {name}"), &line)
    }
}
