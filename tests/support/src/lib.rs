//! Common parts of the tests of all backends: random kernels with their operands, layouts of
//! operands in memory, and bounds on the distance of a backend's f32 arithmetic from the evaluator;
//! and an emulated GPU. Each backend runs kernels in its own way.

mod absmax;
mod bound;
mod case;
mod check;
mod driver;
pub mod edits;
mod generate;
mod hashed;
mod newcomer;
mod recurrent;
mod rng;
mod sinkhorn;

pub use bound::{Approx, ULP, reference};
pub use case::{Case, row_of};
pub use check::{Bounds, OwnError};
pub use driver::fake_driver;
pub use generate::{FORMATS, Gen, Margins};
pub use newcomer::newcomers;
pub use rng::Rng;
