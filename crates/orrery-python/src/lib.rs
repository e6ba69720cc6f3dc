//! Python's meanings of scalars in one place: unbounded integers, float and string rendering,
//! number equality and arithmetic, `str.format`, `%`, and the `re` dialect.
//!
//! It knows nothing of models, instances or lists; the compiler builds those on top. Start from `Int`.

use num_bigint::BigInt;

/// A Python integer. `Big` is only used outside the range of `i64`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Int {
    Small(i64),
    Big(Box<BigInt>),
}
