//! What the tests of all backends share: random kernels with their operands, how operands stand in
//! memory, and how far a backend's f32 arithmetic may be from the evaluator; a GPU that is none; and
//! fixtures with their weights. How a kernel is run is a matter of each backend.

mod absmax;
mod bound;
mod case;
mod check;
mod driver;
pub mod edits;
mod evict;
mod fixtures;
mod fold;
mod generate;
mod gguf;
mod hashed;
mod newcomer;
mod recurrent;
mod rng;
pub mod selected;
mod sinkhorn;
mod weights;

pub use bound::{Approx, ULP, reference};
pub use case::{Case, row_of};
pub use check::{Bounds, OwnError};
pub use driver::fake_driver;
pub use fixtures::fixture;
pub use fold::folded;
pub use generate::{FORMATS, Gen, Margins};
pub use newcomer::newcomers;
pub use rng::Rng;
pub use weights::{FNV1A, fnv1a, numbers};
