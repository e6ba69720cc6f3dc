//! Plugins of the module `exec`.

use super::args::{plugin, required, text};
use super::{NativePlugin, PluginContext, PluginResult};
use crate::value::Value;

pub(super) const PLUGINS: &[NativePlugin] =
    &[plugin!("exec::in_shell", [required("command", "string")] => "string", in_shell)];

fn in_shell(ctx: &mut dyn PluginContext, args: &[Value]) -> PluginResult {
    let command = for_shell(text(ctx, args[0])?);
    Ok(ctx.heap_mut().str(&command))
}

/// The command that runs a script in a shell. It identifies a resource, so it follows the reference
/// compiler's spelling where that survives word splitting: in double quotes, and only if there is a
/// blank. Otherwise single quotes keep the text together.
fn for_shell(script: &str) -> String {
    let blank = script.is_empty() || script.contains([' ', '\t']);
    let fragile = if blank {
        script.contains("\\\\")
    } else {
        script.contains(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '\\'))
    };
    if fragile {
        return format!("sh -c '{}'", script.replace('\'', r#"'"'"'"#));
    }
    if !blank {
        return format!("sh -c {script}");
    }
    let mut quoted = script.replace(r#"\""#, r#"\\""#).replace('"', r#"\""#);
    if quoted.ends_with('\\') {
        quoted.push('\\');
    }
    format!("sh -c \"{quoted}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_survive_splitting_are_spelled_as_by_the_reference_compiler() {
        for (script, command) in [
            ("echo a", r#"sh -c "echo a""#),
            (r#"echo 'it' "b" $HOME"#, r#"sh -c "echo 'it' \"b\" $HOME""#),
            ("", r#"sh -c """#),
            ("simple", "sh -c simple"),
            ("a\tb", "sh -c \"a\tb\""),
            ("/a/b.c:d@e+f", "sh -c /a/b.c:d@e+f"),
            (r#"a \"b\""#, r#"sh -c "a \\\"b\\\"""#),
            (r"a b\", r#"sh -c "a b\\""#),
        ] {
            assert_eq!(for_shell(script), command);
        }
    }

    #[test]
    fn single_quotes_keep_other_texts_together() {
        for (script, command) in [
            ("a'b", r#"sh -c 'a'"'"'b'"#),
            (r"a\b", r"sh -c 'a\b'"),
            ("a\nb", "sh -c 'a\nb'"),
            (r"a \\ b", r"sh -c 'a \\ b'"),
        ] {
            assert_eq!(for_shell(script), command);
        }
    }
}
