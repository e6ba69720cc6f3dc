//! Values inside a template: Python's own types, and the proxies through which it sees the model.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use indexmap::IndexMap;
use orrery_python::Int;

use super::scope::Scope;
use crate::error::{TemplateError, UndefinedName};
use crate::objects::{DictId, ModelItem, Object};
use crate::source::TemplateSource;
use crate::syntax::ast::{For, MacroDef};

#[derive(Clone)]
pub(super) enum Val {
    Undefined(Rc<Undefined>),
    None,
    Bool(bool),
    Int(Int),
    Float(f64),
    Str(Rc<str>),
    /// A text marked as HTML.
    Markup(Rc<str>),
    Tuple(Rc<[Val]>),
    List(Rc<RefCell<Vec<Val>>>),
    Dict(Rc<RefCell<IndexMap<Key, Val>>>),
    Range(i64, i64, i64),
    /// An iterator that can be read once.
    Iterator(Rc<OnceIterator>),
    /// A list, dict or instance of the model, seen through a proxy.
    Model(Object),
    /// The same without a proxy: an element of `items()` of a proxied dict.
    Bare(Object),
    /// `keys()`, `values()` or `items()` of a dict of the model.
    View(View, DictId),
    /// The same of a dict of the template.
    OwnView(View, Rc<RefCell<IndexMap<Key, Val>>>),
    Method(Rc<Method>),
    Global(&'static str),
    Macro(Rc<Macro>),
    Loop(Rc<Loop>),
    Namespace(Rc<RefCell<IndexMap<Rc<str>, Val>>>),
    Cycler(Rc<Cycler>),
    Joiner(Rc<Joiner>),
    /// `self`: the blocks of the template.
    Blocks,
    /// A callable block: its name, and its level in the chain of templates.
    Block(Rc<str>, usize),
    /// An imported template.
    Module(Rc<Module>),
    /// A key with its items, created by `groupby`.
    Group(Rc<(Val, Val)>),
}

/// Reason for a missing value, and whether its use as a text is an error.
pub(super) struct Undefined {
    pub(super) message: String,
    /// User-facing, if a name was misspelled.
    pub(super) missing: Option<Rc<UndefinedName>>,
    /// Prints as nothing and is false; only dereferencing is an error.
    pub(super) lenient: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Keys,
    Values,
    Items,
}

pub(super) struct OnceIterator {
    pub(super) class: &'static str,
    /// The function that created it, if it is a generator.
    pub(super) function: &'static str,
    /// Remaining items, and the failure at their end: Python raises it only when a reader gets that
    /// far.
    pub(super) state: RefCell<(Vec<Val>, Option<TemplateError>)>,
}

pub(super) struct Method {
    pub(super) object: Val,
    pub(super) name: Rc<str>,
}

pub(super) struct Macro {
    pub(super) name: Rc<str>,
    pub(super) definition: Rc<MacroDef>,
    pub(super) scope: Rc<Scope>,
    /// True if the defining template sees the model; and that template's name.
    pub(super) sees_model: bool,
    pub(super) template: String,
    pub(super) source: Option<Rc<TemplateSource>>,
}

pub(super) struct Loop {
    pub(super) items: Vec<Val>,
    pub(super) index: Cell<usize>,
    pub(super) depth: usize,
    pub(super) changed: RefCell<Option<Vec<Val>>>,
    /// For recursive loops: the statement and the scope around it.
    pub(super) recursion: Option<(Rc<For>, Rc<Scope>)>,
}

pub(super) struct Cycler {
    pub(super) items: Vec<Val>,
    pub(super) position: Cell<usize>,
}

pub(super) struct Joiner {
    pub(super) separator: Rc<str>,
    pub(super) used: Cell<bool>,
}

pub(super) struct Module {
    pub(super) name: String,
    pub(super) body: Rc<str>,
    pub(super) exports: IndexMap<Rc<str>, Val>,
}

/// A key of a dict. Keys are compared by Python's hash and equality (`1`, `1.0` and `true` are one
/// key) and keep their first spelling.
#[derive(Clone)]
pub(super) struct Key {
    pub(super) identity: Identity,
    pub(super) value: Val,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Identity {
    None,
    Int(Int),
    /// A float that is not an integer, by its bits.
    Float(u64),
    Str(Rc<str>),
    Tuple(Vec<Identity>),
    Instance(u32),
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

impl Eq for Key {}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.identity.hash(state);
    }
}

impl Key {
    pub(super) fn text(text: &str) -> Key {
        let text: Rc<str> = text.into();
        Key { identity: Identity::Str(text.clone()), value: Val::Str(text) }
    }
}

impl Val {
    pub(super) fn str(text: impl Into<Rc<str>>) -> Val {
        Val::Str(text.into())
    }

    /// An item of the model; lists, dicts and instances are seen through a proxy.
    pub(super) fn from_item(item: ModelItem<'_>) -> Val {
        match item {
            ModelItem::Object(Object::Null) => Val::None,
            ModelItem::Object(object) => Val::Model(object),
            scalar => Val::unproxied(scalar),
        }
    }

    /// The same without a proxy.
    pub(super) fn unproxied(item: ModelItem<'_>) -> Val {
        match item {
            ModelItem::Bool(bool) => Val::Bool(bool),
            ModelItem::Int(int) => Val::Int(int),
            ModelItem::Float(float) => Val::Float(float),
            ModelItem::Str(text) => Val::str(text),
            ModelItem::Object(object) => Val::Bare(object),
        }
    }

    pub(super) fn int(int: usize) -> Val {
        Val::Int(Int::from(int))
    }

    pub(super) fn list(items: Vec<Val>) -> Val {
        Val::List(Rc::new(RefCell::new(items)))
    }

    pub(super) fn tuple(items: Vec<Val>) -> Val {
        Val::Tuple(items.into())
    }

    pub(super) fn iterator(class: &'static str, items: Vec<Val>) -> Val {
        let state = RefCell::new((items, None));
        Val::Iterator(Rc::new(OnceIterator { class, function: "", state }))
    }

    pub(super) fn undefined(message: impl Into<String>) -> Val {
        Val::Undefined(Rc::new(Undefined {
            message: message.into(),
            missing: None,
            lenient: false,
        }))
    }

    /// An undefined name.
    pub(super) fn missing(message: String, missing: UndefinedName) -> Val {
        let missing = Some(Rc::new(missing));
        Val::Undefined(Rc::new(Undefined { message, missing, lenient: false }))
    }

    pub(super) fn lenient(message: impl Into<String>) -> Val {
        Val::Undefined(Rc::new(Undefined { message: message.into(), missing: None, lenient: true }))
    }

    pub(super) fn is_undefined(&self) -> bool {
        matches!(self, Val::Undefined(_))
    }

    /// A text, marked as HTML or not.
    pub(super) fn as_text(&self) -> Option<&Rc<str>> {
        match self {
            Val::Str(text) | Val::Markup(text) => Some(text),
            _ => None,
        }
    }

    /// The class name in Python's own messages.
    pub(super) fn class(&self) -> &'static str {
        match self {
            Val::Undefined(_) => "StrictUndefined",
            Val::None => "NoneType",
            Val::Bool(_) => "bool",
            Val::Int(_) => "int",
            Val::Float(_) => "float",
            Val::Str(_) => "str",
            Val::Markup(_) => "Markup",
            Val::Tuple(_) => "tuple",
            Val::List(_) => "list",
            Val::Dict(_) => "dict",
            Val::Range(..) => "range",
            Val::Iterator(iterator) => iterator.class,
            Val::Model(Object::List(_)) => "JinjaSequenceProxy",
            Val::Model(Object::Dict(_)) => "JinjaDictProxy",
            Val::Model(_) => "JinjaDynamicProxy",
            Val::Bare(Object::List(_)) => "list",
            Val::Bare(Object::Dict(_)) => "dict",
            Val::Bare(Object::Null) => "NoneValue",
            Val::Bare(_) => "Instance",
            Val::View(..) => "JinjaCallProxy",
            Val::OwnView(View::Keys, _) => "dict_keys",
            Val::OwnView(View::Values, _) => "dict_values",
            Val::OwnView(View::Items, _) => "dict_items",
            Val::Method(_) => "builtin_function_or_method",
            Val::Global(_) => "type",
            Val::Macro(_) => "Macro",
            Val::Loop(_) => "LoopContext",
            Val::Namespace(_) => "Namespace",
            Val::Cycler(_) => "Cycler",
            Val::Joiner(_) => "Joiner",
            Val::Blocks => "TemplateReference",
            Val::Block(..) => "BlockReference",
            Val::Module(_) => "TemplateModule",
            Val::Group(_) => "_GroupTuple",
        }
    }

    /// Jinja's description of the object that lacks an attribute.
    pub(super) fn description(&self) -> String {
        let class = self.class();
        match self {
            Val::None => "None".to_owned(),
            Val::Model(_) | Val::View(..) => format!("inmanta_plugins.std.{class} object"),
            Val::Bare(Object::Instance(_)) => "inmanta.execute.runtime.Instance object".to_owned(),
            Val::Bare(Object::Null) => "inmanta.execute.util.NoneValue object".to_owned(),
            Val::Markup(_) => "markupsafe.Markup object".to_owned(),
            Val::Macro(_) | Val::Loop(_) | Val::Blocks | Val::Block(..) => {
                format!("jinja2.runtime.{class} object")
            }
            Val::Namespace(_) | Val::Cycler(_) | Val::Joiner(_) => {
                format!("jinja2.utils.{class} object")
            }
            Val::Module(_) => "jinja2.environment.TemplateModule object".to_owned(),
            Val::Group(_) => "jinja2.filters._GroupTuple object".to_owned(),
            _ => format!("{class} object"),
        }
    }
}

/// Python's `range` as a list.
pub(super) fn range_items(start: i64, stop: i64, step: i64) -> impl Iterator<Item = i64> {
    let mut next = Some(start);
    std::iter::from_fn(move || {
        let current = next.filter(|&at| if step > 0 { at < stop } else { at > stop })?;
        next = current.checked_add(step);
        Some(current)
    })
}
