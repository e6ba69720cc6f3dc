//! The text of a template and its file.

/// Text of a template, with the file that messages name.
#[derive(Debug)]
pub struct TemplateSource {
    pub path: String,
    pub text: String,
}
