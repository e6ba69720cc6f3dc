//! The errors that Python would raise, as values.

use std::fmt;

/// A Python exception: the name of its class and its `str()`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PyError {
    pub kind: &'static str,
    pub message: String,
}

impl PyError {
    pub fn new(kind: &'static str, message: impl Into<String>) -> Self {
        PyError { kind, message: message.into() }
    }

    pub(crate) fn value(message: impl Into<String>) -> Self {
        PyError::new("ValueError", message)
    }

    pub(crate) fn type_error(message: impl Into<String>) -> Self {
        PyError::new("TypeError", message)
    }

    pub(crate) fn overflow(message: impl Into<String>) -> Self {
        PyError::new("OverflowError", message)
    }

    pub(crate) fn zero_division(message: impl Into<String>) -> Self {
        PyError::new("ZeroDivisionError", message)
    }

    /// Error for a result that is too large: Python would allocate until the machine refuses.
    pub(crate) fn memory(message: impl Into<String>) -> Self {
        PyError::new("MemoryError", message)
    }
}

impl fmt::Display for PyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for PyError {}
