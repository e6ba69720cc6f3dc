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
        // `DEFAULT` may occur several times.
        let sections = self.sections.iter().filter(|(name, _)| name == section);
        let mut options = sections.flat_map(|(_, options)| options);
        options.find(|(name, _)| name == option).map(|(_, value)| value.as_str())
    }
}

/// Parses a text; an error is a sentence with the line.
pub(crate) fn parse(text: &str) -> Result<Ini, String> {
    let mut ini = Ini::default();
    // The indentation of the option that following lines may continue.
    let mut continued: Option<usize> = None;
    let mut unreadable = Vec::new();
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        let trimmed = line.trim();
        if trimmed.starts_with(['#', ';']) {
            continue;
        }
        if trimmed.is_empty() {
            // It belongs to a value that continues behind it.
            if continued.is_some()
                && let Some((_, options)) = ini.sections.last_mut()
                && let Some((_, value)) = options.last_mut()
            {
                value.push('\n');
            }
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
        if let Some(name) = section_header(trimmed) {
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
                orrery_python::repr_str(line)
            ));
        };
        let option = trimmed.split_once(['=', ':']);
        let Some((option, value)) = option.filter(|(name, _)| !name.is_empty()) else {
            let shown = orrery_python::repr_str(line);
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
        for (_, value) in ini.sections.iter_mut().flat_map(|(_, options)| options) {
            value.truncate(value.trim_end().len());
        }
        return Ok(ini);
    }
    Err(format!("Source contains parsing errors: '<string>'\n{}", unreadable.join("\n")))
}

/// The name in `[name]`; whatever follows the last bracket is ignored.
fn section_header(line: &str) -> Option<&str> {
    let (name, _) = line.strip_prefix('[')?.rsplit_once(']')?;
    (!name.is_empty()).then_some(name)
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
    fn a_value_keeps_blank_lines_inside() {
        let ini = parse("[a]] # b\nx =\n  one\n\n  two\n\ny = 1\n").unwrap();
        assert_eq!(ini.get("a]", "x"), Some("\none\n\ntwo"));
        assert_eq!(ini.get("a]", "y"), Some("1"));
        let ini = parse("[DEFAULT]\n[a]\n[DEFAULT]\nz = 2\n").unwrap();
        assert_eq!(ini.get("a", "z"), Some("2"));
    }

    #[test]
    fn errors_name_their_line() {
        for (text, part) in [
            ("hello\n", "no section headers.\nfile: '<string>', line: 1\n'hello\\n'"),
            ("[a]\nx = 1\n[a]\n", "[line  3]: section 'a' already exists"),
            ("[a]\nx = 1\nx = 2\n", "[line  3]: option 'x' in section 'a' already exists"),
            ("[a]\nzzz\n", "\t[line  2]: 'zzz\\n'"),
            ("[a]\nzzz", "\t[line  2]: 'zzz'"),
            ("[a]\n= x\n", "\t[line  2]: '= x\\n'"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
