//! User-facing template errors: the template, its line, and a suggestion.

use std::rc::Rc;

use orrery_jinja::{
    FILTERS, NOT_FOUND, TAGS, TESTS, TemplateSource, TemplateSyntaxError, UndefinedName,
};
use orrery_model::similar_names;
use orrery_syntax::Explanation;

use super::super::{Failure, FileFailure, FileLocation, PluginContext, files};
use crate::value::{DictId, InstanceId};

/// Explains an undefined name and suggests another; `given` are the named arguments of the call.
fn explain(
    undefined: &UndefinedName,
    ctx: &dyn PluginContext,
    given: Option<DictId>,
) -> Explanation {
    let name = &*undefined.name;
    let closest = |names: &[String]| {
        let near = similar_names::closest(name, names.iter().map(String::as_str));
        near.map(|near| format!("did you mean `{near}`?"))
    };
    if let Some(instance) = undefined.of {
        let instance = InstanceId(instance.0);
        let entity = ctx.entity_name(instance);
        let entity = entity.strip_prefix("__config__::").unwrap_or(&entity);
        let names = ctx.attribute_names(instance);
        let help =
            closest(&names).unwrap_or_else(|| format!("its attributes are {}", names.join(", ")));
        return Explanation::new(format!("`{entity}` has no attribute `{name}`")).help(help);
    }
    let names = match given {
        Some(given) => {
            let heap = ctx.heap();
            heap.entries(given).keys().map(|&key| heap.text(key).to_owned()).collect()
        }
        None => ctx.variable_names(),
    };
    let mut explanation = Explanation::new(format!("`{name}` is not defined in this template"));
    explanation.help = closest(&names).or_else(|| {
        let help = "with named arguments, a template sees those and nothing else";
        given.map(|_| help.to_owned())
    });
    explanation
}

/// A syntax error with its location.
pub(super) fn syntax(error: TemplateSyntaxError, source: &TemplateSource) -> Failure {
    let message = error.message.clone();
    let quoted = |text: &str| {
        let start = text.find('\'')? + 1;
        let length = text[start..].find('\'')?;
        Some(text[start..start + length].to_owned())
    };
    let word = quoted(&message).unwrap_or_default();
    let mut explanation = Explanation::new(format!("template syntax: {message}"));
    let mut line = error.line.unwrap_or(1);
    let mut label = String::new();
    let mut underlined = word.clone();
    let mut related = None;
    if let Some((opened, tag)) = &error.open
        && message.starts_with("Unexpected end of template")
    {
        explanation = Explanation::new(format!(
            "`{{% {tag} %}}` is not closed: the template ends without `{{% end{tag} %}}`"
        ));
        (line, underlined) = (*opened, tag.clone());
        label = "opened here".to_owned();
    } else if message.starts_with("Encountered unknown tag") {
        explanation = Explanation::new(format!("a template has no tag `{word}`"));
        if let Some((opened, tag)) = &error.open {
            if message.contains("nesting mistake") || word.starts_with("end") {
                explanation = Explanation::new(format!(
                    "`{{% {word} %}}` where `{{% end{tag} %}}` is expected"
                ));
            }
            related = Some((*opened, tag.clone(), "opened here".to_owned()));
        } else if word.starts_with("end") {
            explanation = Explanation::new(format!("`{{% {word} %}}` closes nothing"));
        }
        if let Some(near) = similar_names::closest(&word, TAGS.into_iter())
            .or_else(|| TAGS.into_iter().find(|tag| word.starts_with(tag)))
        {
            explanation = explanation.help(format!("did you mean `{near}`?"));
        }
    } else if message.starts_with("No filter named") {
        explanation = Explanation::new(format!("a template has no filter `{word}`"));
        explanation.help = similar_names::closest(&word, FILTERS.iter().copied())
            .map(|near| format!("did you mean `{near}`?"));
        if explanation.help.is_none() {
            explanation.help = Some(
                "plugins are filters by their full name with dots: `{{ name | std.upper }}`"
                    .to_owned(),
            );
        }
    } else if message.starts_with("No test named") {
        explanation = Explanation::new(format!("a template has no test `{word}`"));
        explanation.help = similar_names::closest(&word, TESTS.iter().copied())
            .map(|near| format!("did you mean `{near}`?"));
    } else if let Some(rest) = message.strip_prefix("expected token ") {
        let headline = rest.replacen("', got '", "`, found `", 1).replace('\'', "`");
        explanation = Explanation::new(format!("expected {headline}"));
        underlined = String::new();
    }
    let location = FileLocation {
        path: source.path.clone(),
        text: source.text.clone(),
        line,
        word: underlined,
        label,
        related,
    };
    let failure = Failure::python(error.kind, error.message);
    with_location("template-error", failure, explanation, Some(location))
}

fn with_location(
    id: &'static str,
    failure: Failure,
    explanation: Explanation,
    location: Option<FileLocation>,
) -> Failure {
    Failure::InFile(Box::new(FileFailure { failure, id, explanation, location }))
}

/// Adds the location to a failure during rendering; control flow failures stay unchanged.
pub(super) fn rendering(
    ctx: &dyn PluginContext,
    failure: Failure,
    location: Option<(Rc<TemplateSource>, usize)>,
    undefined: Option<Rc<UndefinedName>>,
    given: Option<DictId>,
) -> Failure {
    let message = match &failure {
        Failure::Unset(_)
        | Failure::Unknown(_)
        | Failure::Optional { .. }
        | Failure::NeedsOtherHost(_)
        | Failure::InFile(_) => return failure,
        Failure::Python(error) if error.kind == NOT_FOUND => {
            return not_found(ctx, failure, location);
        }
        Failure::Python(error) => {
            let kind = error.kind.rsplit('.').next().unwrap_or(error.kind);
            match kind {
                "UndefinedError" | "TemplateRuntimeError" => error.message.clone(),
                kind => format!("{} ({kind})", error.message),
            }
        }
        Failure::Plugin(text) | Failure::Runtime(text) => text.clone(),
        Failure::Argument { reason, .. } => reason.clone(),
        Failure::Exception { class, message, .. } => format!("{message} ({class})"),
    };
    let mut word = String::new();
    let (id, explanation) = match undefined {
        Some(missing) => {
            word = missing.name.to_string();
            ("undefined-in-template", explain(&missing, ctx, given))
        }
        None => {
            ("template-error", Explanation::new(format!("cannot render the template: {message}")))
        }
    };
    let location = location.map(|(source, line)| line_of(&source, line, word));
    with_location(id, failure, explanation, location)
}

fn line_of(source: &TemplateSource, line: usize, word: String) -> FileLocation {
    FileLocation {
        path: source.path.clone(),
        text: source.text.clone(),
        line,
        word,
        label: String::new(),
        related: None,
    }
}

/// Explains a missing template: the searched path and the existing templates.
fn not_found(
    ctx: &dyn PluginContext,
    failure: Failure,
    location: Option<(Rc<TemplateSource>, usize)>,
) -> Failure {
    let path = match &failure {
        Failure::Python(error) => error.message.clone(),
        _ => String::new(),
    };
    let mut explanation = Explanation::new(format!("template `{path}` not found"));
    match files::resolve(ctx, &path, "templates") {
        Ok(file) => {
            explanation = explanation.note(format!("looked for {}", ctx.show_path(&file)));
            let (directory, name) = file.rsplit_once('/').unwrap_or((".", &file));
            let names = ctx.list_dir(directory).unwrap_or_default();
            if let Some(near) = similar_names::closest(name, names.iter().map(String::as_str)) {
                let meant = path.strip_suffix(name).unwrap_or_default();
                explanation = explanation.help(format!("did you mean `{meant}{near}`?"));
            }
        }
        Err(_) => {
            let module = path.split('/').next().unwrap_or_default();
            explanation = explanation.note(format!("there is no module `{module}` in this model"));
        }
    }
    if explanation.help.is_none() {
        explanation = explanation.help(
            "`/name` is templates/name of the project, `./name` that of the calling module, and \
             `module/name` that of another module",
        );
    }
    let location = location.map(|(source, line)| {
        let word = path.clone();
        line_of(&source, line, word)
    });
    with_location("template-not-found", failure, explanation, location)
}
