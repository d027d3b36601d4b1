//! Places in the data segment.

/// A byte range of the data segment.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset from the start of the data segment.
    pub off: u64,
    /// Bytes.
    pub len: u64,
}

/// A table: `count` structures from byte `off` of the data segment.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Offset from the start of the data segment, aligned to 8.
    pub off: u64,
    /// Number of elements.
    pub count: u64,
}
