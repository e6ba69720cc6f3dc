//! What Python answered, replayed; and properties that hold for any input.

mod smoke;
