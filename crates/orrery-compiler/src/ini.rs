//! Files of sections and options such as `setup.cfg`, parsed like Python's `configparser`.

/// Options by section, option names in lower case.
#[derive(Debug, Default)]
pub(crate) struct Ini {
    sections: Vec<(String, Vec<(String, String)>)>,
}

const DEFAULTS: &str = "DEFAULT";

impl Ini {
    pub(crate) fn has_section(&self, name: &str) -> bool {
        self.sections.iter().any(|(section, _)| section == name)
    }

    /// The value of an option; the section `DEFAULT` provides fallbacks for all others.
    pub(crate) fn get(&self, section: &str, option: &str) -> Option<&str> {
        if !self.has_section(section) {
            return None;
        }
        self.section_value(section, option).or_else(|| self.section_value(DEFAULTS, option))
    }

    fn section_value(&self, section: &str, option: &str) -> Option<&str> {
        let (_, options) = self.sections.iter().find(|(name, _)| name == section)?;
        options.iter().find(|(name, _)| name == option).map(|(_, value)| value.as_str())
    }
}

/// Parses a text; an error is a sentence with the line.
pub(crate) fn parse(text: &str) -> Result<Ini, String> {
    let mut ini = Ini::default();
    // The indentation of the option that following lines may continue.
    let mut continued: Option<usize> = None;
    let mut unreadable = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        if let Some(outer) = continued
            && indent > outer
            && let Some((_, options)) = ini.sections.last_mut()
            && let Some((_, value)) = options.last_mut()
        {
            value.push('\n');
            value.push_str(trimmed);
            continue;
        }
        continued = None;
        if let Some((name, _)) = trimmed.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            // Only `DEFAULT` may be repeated.
            if ini.has_section(name) && name != DEFAULTS {
                return Err(format!(
                    "While reading from '<string>' [line {number:2}]: section '{name}' already exists"
                ));
            }
            ini.sections.push((name.to_owned(), Vec::new()));
            continue;
        }
        let Some((section, options)) = ini.sections.last_mut() else {
            return Err(format!(
                "File contains no section headers.\nfile: '<string>', line: {number}\n{}",
                orrery_python::repr_str(&format!("{line}\n"))
            ));
        };
        let Some((option, value)) = trimmed.split_once(['=', ':']) else {
            let shown = orrery_python::repr_str(&format!("{line}\n"));
            unreadable.push(format!("\t[line {number:2}]: {shown}"));
            continue;
        };
        let option = option.trim().to_lowercase();
        if options.iter().any(|(name, _)| *name == option) {
            return Err(format!(
                "While reading from '<string>' [line {number:2}]: option '{option}' in section '{section}' already exists"
            ));
        }
        options.push((option, value.trim().to_owned()));
        continued = Some(indent);
    }
    if unreadable.is_empty() {
        return Ok(ini);
    }
    Err(format!("Source contains parsing errors: '<string>'\n{}", unreadable.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_by_section() {
        let text = "# first\n[DEFAULT]\nlicense = y\n[metadata]\nName: a \nlong =\n  one\n  two\n[empty]\n";
        let ini = parse(text).unwrap();
        assert_eq!(ini.get("metadata", "name"), Some("a"));
        assert_eq!(ini.get("metadata", "long"), Some("\none\ntwo"));
        assert_eq!(ini.get("metadata", "license"), Some("y"));
        assert_eq!(ini.get("Metadata", "name"), None);
        assert!(ini.has_section("empty") && !ini.has_section("options"));
    }

    #[test]
    fn errors_name_their_line() {
        for (text, part) in [
            ("hello\n", "no section headers.\nfile: '<string>', line: 1\n'hello\\n'"),
            ("[a]\nx = 1\n[a]\n", "[line  3]: section 'a' already exists"),
            ("[a]\nx = 1\nx = 2\n", "[line  3]: option 'x' in section 'a' already exists"),
            ("[a]\nzzz\n", "\t[line  2]: 'zzz\\n'"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
