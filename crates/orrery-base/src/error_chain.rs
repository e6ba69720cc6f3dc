//! Errors with their causes, on one line.

use std::error::Error;

/// Formats an error and its causes, separated by colons.
///
/// A cause whose text the line already contains is left out: some libraries repeat the text of
/// the source in their `Display`.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    for cause in error.source().into_iter().flat_map(sources) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// Iterates over an error and its causes, outermost first.
pub fn sources<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Layer>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|source| source as &(dyn Error + 'static))
        }
    }

    #[test]
    fn causes_follow_once_each() {
        let io = Layer("connection refused", None);
        let repeating = Layer("send: connection refused", Some(Box::new(io)));
        let error = Layer("cannot log in", Some(Box::new(repeating)));
        assert_eq!(error_chain(&error), "cannot log in: send: connection refused");
        assert_eq!(sources(&error).count(), 3);
    }
}
