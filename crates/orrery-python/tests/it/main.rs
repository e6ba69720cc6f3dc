//! Replay of recorded Python results; and properties that hold for any input.

mod formatting;
mod numbers;
mod properties;
mod records;
mod regexes;
mod smoke;
mod texts;
