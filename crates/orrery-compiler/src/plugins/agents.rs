//! Plugins of the module `agents`.

use orrery_model::{InstallScript, ProgramSource, SecretText};

use super::args::{optional, plugin, required, text};
use super::{Failure, NativePlugin, ParamDefault, PluginContext, PluginResult};
use crate::value::Value;

pub(super) const PLUGINS: &[NativePlugin] = &[plugin!("agents::install_script", [
    required("gateway", "string"),
    required("token", "string"),
    required("sha256", "string"),
    optional("program", "string", ParamDefault::Str("")),
    optional("architecture", "string", ParamDefault::Str("x86_64")),
    optional("user", "string", ParamDefault::Str("")),
    optional("cloud_init", "bool", ParamDefault::Bool(false)),
] => "string", install_script)];

/// Boot script of a new machine, as `orrery agent install-script` prints it.
fn install_script(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let word = |at: usize| text(ctx, args[at]).map(str::to_owned);
    let (sha256, program) = (word(2)?, word(3)?);
    let program = match &*program {
        "" => ProgramSource::Gateway { architecture: word(4)?, sha256 },
        url if url.contains("://") => ProgramSource::Url { url: program, sha256 },
        _ => ProgramSource::Path { path: program, sha256: Some(sha256) },
    };
    let user = Some(word(5)?).filter(|user| !user.is_empty());
    let (gateway, token) = (word(0)?, SecretText::new(word(1)?));
    let script = InstallScript { gateway, token, program, user };
    let rendered =
        if matches!(args[6], Value::Bool(true)) { script.cloud_init() } else { script.shell() };
    match rendered {
        Ok(rendered) => Ok(ctx.heap_mut().str(&rendered)),
        Err(error) => Err(Failure::Plugin(error.to_string())),
    }
}
