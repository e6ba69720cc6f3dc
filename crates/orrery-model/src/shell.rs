//! Shell quoting, for commands that users copy.

/// Quotes a text so that a shell reads it as one word.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./,:=@%+".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_text_again() {
        let texts =
            ["plain/path", "", "it's", "$(id) `id` \\ \"x\"", "a\nb", "t::R[a,b='c']", "~", "*"];
        for text in texts {
            let script = format!("printf %s {}", shell_word(text));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), text, "{script}");
        }
    }
}
