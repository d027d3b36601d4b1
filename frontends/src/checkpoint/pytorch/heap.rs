//! Values of a pickle, and objects that they refer to by number, so that neither cycles nor depth
//! cost anything.

use super::globals::Meaning;
use crate::checkpoint::safetensors::StoredType;

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pickle<'a> {
    /// `None`
    None,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer of more than 64 bits, little-endian.
    Long(&'a [u8]),
    /// A float, which no tensor is made of.
    Float,
    /// A text.
    Text(&'a str),
    /// Bytes, which no tensor is made of.
    Bytes,
    /// A name, see [`super::globals`].
    Global(Meaning),
    /// An object of the heap.
    Object(usize),
}

/// An object. (Its parts lie elsewhere, so that a byte of a pickle makes few.)
#[derive(Clone, Debug)]
pub(super) enum Object<'a> {
    /// A tuple or a list.
    List(Vec<Pickle<'a>>),
    /// A dictionary in the order of insertion.
    Dict(Vec<(Pickle<'a>, Pickle<'a>)>),
    /// Where elements are.
    Storage(Box<Storage<'a>>),
    /// Some of these.
    Tensor(Box<Pickled>),
    /// An object that is part of no tensor.
    Opaque,
}

/// All objects of a file.
#[derive(Debug, Default)]
pub(super) struct Objects<'a> {
    pub objects: Vec<Object<'a>>,
}

impl<'a> Objects<'a> {
    /// Puts an object on the heap.
    pub fn keep(&mut self, object: Object<'a>) -> Pickle<'a> {
        self.objects.push(object);
        Pickle::Object(self.objects.len() - 1)
    }

    /// The object that a value is.
    pub fn object(&self, value: Pickle<'a>) -> Option<&Object<'a>> {
        if let Pickle::Object(i) = value { self.objects.get(i) } else { None }
    }

    /// The elements of a tuple or list.
    pub fn list(&self, value: Pickle<'a>) -> Option<&[Pickle<'a>]> {
        if let Some(Object::List(items)) = self.object(value) { Some(items) } else { None }
    }
}

/// A storage by its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storage<'a> {
    pub key: &'a str,
    pub ty: &'static StoredType,
    /// Elements of the whole.
    pub numel: u64,
    /// Elements that are skipped, of storages that are a part of another.
    pub skipped: u64,
}

/// Elements of a storage.
#[derive(Clone, Debug)]
pub(super) struct Pickled {
    /// Where in the pickle it is made.
    pub at: usize,
    /// The storage, an object.
    pub storage: usize,
    pub ty: &'static StoredType,
    /// In elements.
    pub offset: u64,
    pub sizes: Vec<u64>,
    pub strides: Vec<u64>,
}
