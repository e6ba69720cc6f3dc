//! Values of a model: lists, dicts and instances by handle, scalars by copy.

use std::rc::Rc;

use orrery_python::Int;

/// A list of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListId(pub u32);

/// A dict of the model; its keys are texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DictId(pub u32);

/// An instance of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceId(pub u32);

/// An unknown of the model: reading it ends the render.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownId(pub u32);

/// A value that the model only carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherId(pub u32);

/// A value of the model that a template holds by handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    Null,
    List(ListId),
    Dict(DictId),
    Instance(InstanceId),
    Unknown(UnknownId),
    Other(OtherId),
}

/// A value that the model hands to a template.
#[derive(Clone, Debug)]
pub enum ModelItem<'m> {
    Bool(bool),
    Int(Int),
    Float(f64),
    Str(&'m str),
    Object(Object),
}

/// Answer of the model about an attribute of an instance.
#[derive(Clone, Debug)]
pub enum AttributeValue<'m> {
    Found(ModelItem<'m>),
    /// It has no value; its use as a text gives nothing.
    Empty,
    /// The entity does not declare it, and its use is an error.
    Undeclared,
}

/// A value that a template passes to the model.
#[derive(Clone, Debug)]
pub enum Argument {
    None,
    Bool(bool),
    Int(Int),
    Float(f64),
    Str(Rc<str>),
    List(Vec<Argument>),
    Dict(Vec<(Rc<str>, Argument)>),
    /// A value of the model that the template sees through a proxy.
    Proxy(Object),
    /// The same without a proxy: an element of `items()` of a proxied dict.
    Bare(Object),
}
