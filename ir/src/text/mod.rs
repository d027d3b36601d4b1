//! Text of the three levels (`.lir`): printers and parsers. The language is described in `docs/ir.md`.
//!
//! `parse(print(x)) == x` for everything whose names are unique and whose references exist: floats are printed as the shortest
//! decimal that reads back to the same bits, values are renumbered in order. Printing takes linear time and never fails; a reference
//! to something that does not exist prints as a number that the parser refuses.
//!
//! | level  | print            | parse            |
//! |--------|------------------|------------------|
//! | graph  | [`print_module`], [`print_func`] | `parse_module`, `parse_func` |
//! | kernel | [`print_kernel`] | `parse_kernel` |
//! | plan   | [`print_plan`]   | `parse_plan`   |

/// Appends formatted text to a `String`, which cannot fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {{
        use std::fmt::Write as _;
        let _ = write!($out, $($arg)*);
    }};
}

mod expr;
mod names;
mod print_graph;
mod print_kernel;
mod print_plan;
mod syntax;

pub use print_graph::{print_func, print_module};
pub use print_kernel::print_kernel;
pub use print_plan::print_plan;
