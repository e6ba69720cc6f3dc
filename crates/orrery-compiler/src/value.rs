//! Values of the language and the arenas that hold them.
//!
//! A `Value` is 16 bytes and `Copy`: strings, lists and dicts are numbers into the `Heap`, which
//! never frees during a compile. Strings are interned, so that equal texts are equal numbers; this
//! makes index keys, dict keys and equality cheap.

use std::cell::Cell;
use std::hash::BuildHasher;

use hashbrown::HashTable;
use indexmap::IndexMap;
use orrery_python::{Int, Number};
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::ids::ids;
use crate::late_values::LateValue;

ids! {
    /// An interned string value.
    StrId,
    ListId,
    DictId,
    /// An integer outside `i64`.
    BigId,
    /// An instance of an entity.
    InstanceId,
    /// One unknown; unknowns are equal only to themselves.
    UnknownId,
    /// A value that the language cannot express, such as a Python tuple: it is only carried.
    OtherId,
}

#[derive(Clone, Copy, Debug)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(StrId),
    List(ListId),
    Dict(DictId),
    Instance(InstanceId),
    Unknown(UnknownId),
    Big(BigId),
    Other(OtherId),
}

impl Value {
    pub fn is_unknown(self) -> bool {
        matches!(self, Value::Unknown(_))
    }
}

pub type Dict = IndexMap<StrId, Value, FxBuildHasher>;

/// A carried value: its Python `repr` and `str`, and its class name.
#[derive(Clone, Debug, Default)]
pub struct Other {
    pub class: String,
    pub repr: String,
    /// For a late-bound value: the type that it resolves to, in model syntax.
    pub reference: Option<Box<str>>,
    /// Handle of a value owned by the host.
    pub owned: Option<Owned>,
    /// The serialized form of a late-bound value that needs no code to be resolved.
    pub late_value: Option<Box<LateValue>>,
}

impl Other {
    /// True if Python code sees it through a proxy: all but tuples and late-bound values.
    pub fn is_behind_proxy(&self) -> bool {
        self.owned.is_some() && self.reference.is_none() && self.class != "tuple"
    }
}

/// A value that lives in a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The host's handle.
    pub handle: u32,
    /// Values that the host considers equal have the same number.
    pub equality: u32,
}

/// Interned texts in large chunks: one allocation for thousands of short strings.
#[derive(Debug, Default)]
struct Texts {
    chunks: Vec<String>,
    /// Chunk, start and length of each text.
    spans: Vec<(u32, u32, u32)>,
    /// Total length of all texts.
    bytes: usize,
}

const CHUNK_BYTES: usize = 1 << 18;

impl Texts {
    fn get(&self, id: u32) -> &str {
        let (chunk, start, length) = self.spans[id as usize];
        &self.chunks[chunk as usize][start as usize..(start + length) as usize]
    }

    fn push(&mut self, text: &str) -> u32 {
        let full =
            self.chunks.last().is_none_or(|chunk| chunk.capacity() - chunk.len() < text.len());
        if full {
            self.chunks.push(String::with_capacity(CHUNK_BYTES.max(text.len())));
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        let start = chunk.len();
        chunk.push_str(text);
        let id = index_of(self.spans.len());
        self.spans.push((index_of(number), index_of(start), index_of(text.len())));
        self.bytes += text.len();
        id
    }
}

/// Arena of all values.
#[derive(Debug, Default)]
pub struct Heap {
    texts: Texts,
    by_text: HashTable<u32>,
    /// Members of all lists, one list after the other.
    members: Vec<Value>,
    /// Start and length of each list.
    lists: Vec<(u32, u32)>,
    dicts: Vec<Dict>,
    /// Total number of entries.
    dict_entries: usize,
    /// Of each dict, and of each list that contains lists or dicts.
    dict_shapes: Vec<Shape>,
    list_shapes: FxHashMap<ListId, Shape>,
    /// The greatest depth and the greatest size of any value.
    extremes: Shape,
    text_max: Option<usize>,
    /// True if a text was truncated because of its length.
    text_cut: Cell<bool>,
    bigs: Vec<Int>,
    others: Vec<Other>,
    /// Source of each unknown, for messages.
    unknowns: Vec<Option<InstanceId>>,
}

/// Nesting depth of a value and a lower bound of its serialized size in bytes. A value that is
/// referenced several times is written as often, so this can far exceed its size in memory.
#[derive(Clone, Copy, Debug, Default)]
struct Shape {
    depth: u32,
    size: u64,
}

impl Shape {
    /// The shape of a container with these members.
    fn containing(members: impl Iterator<Item = Shape>) -> Self {
        let mut shape = Shape { depth: 0, size: 2 };
        for member in members {
            shape.depth = shape.depth.max(member.depth);
            shape.size = shape.size.saturating_add(member.size).saturating_add(2);
        }
        shape.depth += 1;
        shape
    }
}

fn index_of(len: usize) -> u32 {
    u32::try_from(len).expect("invariant: fewer than 2^32 values of a kind fit into memory")
}

fn hash_text(text: &str) -> u64 {
    FxBuildHasher.hash_one(text)
}

/// Maximum length of a text: repeated doubling of a text fails while there is memory left.
pub const TEXT_BYTES_MAX: usize = 1 << 30;
/// Maximum length of a list.
pub const MEMBERS_MAX: usize = 1 << 27;
/// Default limit on the serialized size of a value.
pub const WRITTEN_BYTES_MAX: usize = 1 << 28;

/// Memory per dict entry: key, value, hash and a table slot, with some slack.
const DICT_ENTRY_BYTES: usize = 48;
/// Memory overhead of a text, a list or a dict.
const ITEM_BYTES: usize = 24;

impl Heap {
    /// Approximate memory use of all values.
    pub fn bytes(&self) -> usize {
        self.texts.bytes
            + self.members.len() * size_of::<Value>()
            + self.dict_entries * DICT_ENTRY_BYTES
            + (self.texts.spans.len() + self.lists.len() + self.dicts.len()) * ITEM_BYTES
    }

    pub fn intern(&mut self, text: &str) -> StrId {
        let hash = hash_text(text);
        let texts = &mut self.texts;
        if let Some(&found) = self.by_text.find(hash, |&i| texts.get(i) == text) {
            return StrId(found);
        }
        let id = texts.push(text);
        self.by_text.insert_unique(hash, id, |&i| hash_text(texts.get(i)));
        StrId(id)
    }

    pub fn find_text(&self, text: &str) -> Option<StrId> {
        let found = self.by_text.find(hash_text(text), |&i| self.texts.get(i) == text);
        found.map(|&i| StrId(i))
    }

    pub fn str(&mut self, text: &str) -> Value {
        Value::Str(self.intern(text))
    }

    pub fn text(&self, id: StrId) -> &str {
        self.texts.get(id.0)
    }

    pub fn list(&mut self, items: Vec<Value>) -> Value {
        Value::List(self.list_id(items))
    }

    pub fn list_id(&mut self, items: Vec<Value>) -> ListId {
        self.list_of(&items)
    }

    pub fn items(&self, id: ListId) -> &[Value] {
        let (start, length) = self.lists[id.index()];
        &self.members[start as usize..(start + length) as usize]
    }

    pub fn list_of(&mut self, items: &[Value]) -> ListId {
        let id = ListId(index_of(self.lists.len()));
        self.lists.push((index_of(self.members.len()), index_of(items.len())));
        self.members.extend_from_slice(items);
        if items.iter().any(|item| matches!(item, Value::List(_) | Value::Dict(_))) {
            let shape = Shape::containing(items.iter().map(|&item| self.shape_of(item)));
            self.list_shapes.insert(id, shape);
            self.record_shape(shape);
        }
        id
    }

    /// Depth of the most deeply nested value.
    pub fn max_depth(&self) -> u32 {
        self.extremes.depth
    }

    /// Maximum length of the text of a value, in bytes.
    pub fn text_max(&self) -> usize {
        self.text_max.unwrap_or(WRITTEN_BYTES_MAX)
    }

    pub fn set_text_max(&mut self, bytes: usize) {
        self.text_max = Some(bytes);
    }

    /// True if the text of some value would be too long. Such a value should not be read.
    pub fn is_too_large(&self) -> bool {
        self.extremes.size > self.text_max() as u64 || self.text_cut.get()
    }

    /// True if a text under construction has become too long. It may end there, since the run does.
    pub fn is_too_long(&self, text: &str) -> bool {
        let cuts = text.len() > self.text_max();
        if cuts {
            self.text_cut.set(true);
        }
        cuts
    }

    fn record_shape(&mut self, shape: Shape) {
        self.extremes.depth = self.extremes.depth.max(shape.depth);
        self.extremes.size = self.extremes.size.max(shape.size);
    }

    fn shape_of(&self, value: Value) -> Shape {
        match value {
            Value::Dict(id) => self.dict_shapes[id.index()],
            Value::List(id) => self.list_shapes.get(&id).copied().unwrap_or_else(|| {
                let items = self.items(id).len() as u64;
                Shape { depth: 1, size: 2 + items.saturating_mul(3) }
            }),
            _ => Shape { depth: 0, size: 1 },
        }
    }

    pub fn dict(&mut self, dict: Dict) -> Value {
        let id = DictId(index_of(self.dicts.len()));
        self.dict_entries += dict.len();
        let shape = Shape::containing(dict.values().map(|&value| self.shape_of(value)));
        self.dict_shapes.push(shape);
        self.record_shape(shape);
        self.dicts.push(dict);
        Value::Dict(id)
    }

    pub fn entries(&self, id: DictId) -> &Dict {
        &self.dicts[id.index()]
    }

    pub fn int(&mut self, int: Int) -> Value {
        match int {
            Int::Small(small) => Value::Int(small),
            big @ Int::Big(_) => {
                let id = BigId(index_of(self.bigs.len()));
                self.bigs.push(big);
                Value::Big(id)
            }
        }
    }

    pub fn big(&self, id: BigId) -> &Int {
        &self.bigs[id.index()]
    }

    pub fn other(&mut self, other: Other) -> Value {
        let id = OtherId(index_of(self.others.len()));
        self.others.push(other);
        Value::Other(id)
    }

    pub fn get_other(&self, id: OtherId) -> &Other {
        &self.others[id.index()]
    }

    /// The serialized form of a late-bound value that needs no code to be resolved.
    pub(crate) fn late_value(&self, value: Value) -> Option<&LateValue> {
        let Value::Other(id) = value else { return None };
        self.get_other(id).late_value.as_deref()
    }

    /// True if resources may contain late-bound values.
    pub(crate) fn has_others(&self) -> bool {
        !self.others.is_empty()
    }

    /// Creates an unknown; `source` is the instance with the missing fact, if any.
    pub fn unknown(&mut self, source: Option<InstanceId>) -> Value {
        let id = UnknownId(index_of(self.unknowns.len()));
        self.unknowns.push(source);
        Value::Unknown(id)
    }

    /// True if an unknown of this number exists.
    pub fn has_unknown(&self, id: UnknownId) -> bool {
        id.index() < self.unknowns.len()
    }

    /// The instance with the fact that an unknown represents, if any.
    pub fn unknown_source(&self, id: UnknownId) -> Option<InstanceId> {
        self.unknowns[id.index()]
    }

    /// The numeric value for arithmetic: integers, floats and booleans.
    pub fn number(&self, value: Value) -> Option<Number> {
        match value {
            Value::Int(i) => Some(Number::Int(Int::Small(i))),
            Value::Bool(b) => Some(Number::Int(Int::Small(i64::from(b)))),
            Value::Float(f) => Some(Number::Float(f)),
            Value::Big(id) => Some(Number::Int(self.big(id).clone())),
            _ => None,
        }
    }

    pub fn from_number(&mut self, number: Number) -> Value {
        match number {
            Number::Int(int) => self.int(int),
            Number::Float(float) => Value::Float(float),
        }
    }

    /// Python's `==`.
    pub fn equal(&self, left: Value, right: Value) -> bool {
        match (left, right) {
            (Value::Null, Value::Null) => true,
            (Value::Str(a), Value::Str(b)) => a == b,
            (Value::Int(a), Value::Int(b)) => a == b,
            (Value::Instance(a), Value::Instance(b)) => a == b,
            (Value::Unknown(a), Value::Unknown(b)) => a == b,
            (Value::Other(a), Value::Other(b)) => {
                let (a, b) = (self.get_other(a), self.get_other(b));
                match (a.owned, b.owned) {
                    (Some(a), Some(b)) => a.equality == b.equality,
                    (None, None) => a.class == b.class && a.repr == b.repr,
                    _ => false,
                }
            }
            (Value::List(a), Value::List(b)) if a == b => true,
            (Value::Dict(a), Value::Dict(b)) if a == b => true,
            (Value::List(a), Value::List(b)) => {
                let (a, b) = (self.items(a), self.items(b));
                a.len() == b.len() && a.iter().zip(b).all(|(&a, &b)| self.equal(a, b))
            }
            (Value::Dict(a), Value::Dict(b)) => {
                let (a, b) = (self.entries(a), self.entries(b));
                a.len() == b.len()
                    && a.iter().all(|(k, &v)| b.get(k).is_some_and(|&w| self.equal(v, w)))
            }
            _ => match (self.number(left), self.number(right)) {
                (Some(a), Some(b)) => orrery_python::num_eq(&a, &b),
                _ => false,
            },
        }
    }

    /// Python's truth value.
    pub fn truthy(&self, value: Value) -> bool {
        match value {
            Value::Null => false,
            Value::Bool(b) => b,
            Value::Int(i) => i != 0,
            Value::Float(f) => f != 0.0,
            Value::Str(id) => !self.text(id).is_empty(),
            Value::List(id) => !self.items(id).is_empty(),
            Value::Dict(id) => !self.entries(id).is_empty(),
            Value::Instance(_) | Value::Unknown(_) | Value::Big(_) | Value::Other(_) => true,
        }
    }

    /// The Python class of a value in messages.
    pub fn class_name(&self, value: Value) -> &str {
        match value {
            Value::Null => "NoneValue",
            Value::Bool(_) => "bool",
            Value::Int(_) | Value::Big(_) => "int",
            Value::Float(_) => "float",
            Value::Str(_) => "str",
            Value::List(_) => "list",
            Value::Dict(_) => "dict",
            Value::Instance(_) => "Instance",
            Value::Unknown(_) => "Unknown",
            Value::Other(id) => {
                let class = &self.get_other(id).class;
                class.rsplit('.').next().unwrap_or(class)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_small_and_equal_texts_are_equal_numbers() {
        assert_eq!(size_of::<Value>(), 16);
        let mut heap = Heap::default();
        assert_eq!(heap.intern("a"), heap.intern("a"));
        assert_ne!(heap.intern("a"), heap.intern("b"));
    }

    #[test]
    fn a_value_referenced_several_times_counts_as_often() {
        let mut heap = Heap::default();
        let key = heap.intern("a");
        let mut value = Value::Null;
        for level in 1..=60 {
            let twice = heap.list(vec![value, value]);
            value = heap.dict(Dict::from_iter([(key, twice)]));
            assert_eq!(heap.is_too_large(), level > 24, "{level}");
        }
        assert_eq!(heap.max_depth(), 120);
        assert!(heap.equal(value, value));
        heap.set_text_max(usize::MAX);
        assert!(!heap.is_too_large());
    }

    #[test]
    fn equality_is_python_s() {
        let mut heap = Heap::default();
        assert!(heap.equal(Value::Int(1), Value::Float(1.0)));
        assert!(heap.equal(Value::Int(1), Value::Bool(true)));
        assert!(!heap.equal(Value::Null, Value::Bool(false)));
        let (a, b) = (heap.list(vec![Value::Int(1)]), heap.list(vec![Value::Float(1.0)]));
        assert!(heap.equal(a, b));
    }
}
