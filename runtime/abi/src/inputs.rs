//! Arrays that an entry takes with the tokens, beside those that come with every batch: places in sequences, and
//! the rows that are asked for.

/// Declares the arrays: their fields in [`StepCtx`](crate::StepCtx) and [`GpuCtx`](crate::GpuCtx), and their names.
macro_rules! arrays {
    ($($(#[$doc:meta])* $field:ident $name:ident;)*) => {
        /// An array that some entries take.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Array {
            $($(#[$doc])* $name,)*
        }

        impl Array {
            /// All of them, in their order.
            pub const ALL: &[Array] = &[$(Array::$name,)*];
        }

        /// The addresses of the arrays of a step: pointers for processors, addresses of the device for GPUs.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Arrays<P> {
            $($(#[$doc])* pub $field: P,)*
        }

        impl<P> Arrays<P> {
            /// The address of each of them.
            pub fn new(mut of: impl FnMut(Array) -> P) -> Arrays<P> {
                Arrays { $($field: of(Array::$name),)* }
            }
        }
    };
}

arrays! {
    /// `i32 [T]` types of tokens, less than the size of [`input::TYPES`]; not there if the entry does not take them.
    types Types;
    /// `f32 [T, given]` the row of each token, of the size of [`input::ROWS`]; not there if the entry does not take
    /// them, or no token of the step takes one.
    given Given;
    /// `i32 [T, AXES]` positions of each token along the axes ([`AXES`]); not there if the entry does not take them.
    axes Axes;
}

/// Axes along which tokens have positions, in entries that take these: time, height and width (multimodal rotary
/// positions, arXiv 2409.12191).
pub const AXES: usize = 3;
/// The largest position along an axis: f32 has all up to it.
pub const MAX_POSITION: i32 = 1 << 24;

/// An array that an entry takes with the tokens.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputDesc {
    /// See [`input`].
    pub kind: u32,
    /// The id of the tokens that rows are given for, of [`input::ROWS_OF_TOKEN`]; else zero.
    pub token: u32,
    /// Size, by the kind; positive.
    pub size: u64,
}

/// Kinds of [`InputDesc`], in [`InputDesc::kind`]. Tokens, positions and the rows that are asked for come with every
/// batch.
pub mod input {
    /// `i32 [T]` types of tokens (segments of BERT); the size is their number.
    pub const TYPES: u32 = 0;
    /// `f32 [T, size]` a row of each token: a hidden state, a frame of a spectrogram, a patch of an image.
    pub const ROWS: u32 = 1;
    /// `f32 [T, size]` the same of tokens with one id, which stand for rows of an image; rows of other tokens are not
    /// read, and a step without such tokens has none.
    pub const ROWS_OF_TOKEN: u32 = 2;
    /// `i32 [T, size]` positions along the axes; the size is [`AXES`](super::AXES).
    pub const AXES: u32 = 3;
    /// The most columns of these rows.
    pub const MAX_COLUMNS: u64 = 1 << 20;
}
