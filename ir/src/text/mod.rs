//! Text of the three levels (`.lir`): printers and parsers. The language is described in
//! `docs/ir.md`.
//!
//! `parse(print(x)) == x` for everything whose names are unique, whose references exist, and whose
//! expressions are at most 200 deep: floats are printed as the shortest decimal that reads back to
//! the same bits, values are renumbered in order. Printing takes linear time and never fails; a
//! reference to something that does not exist prints as a name or number that the parser refuses.
//! Parsing collects errors with their places, and takes no more than linear time and space on any
//! input.
//!
//! | level  | print                            | parse                            |
//! |--------|----------------------------------|----------------------------------|
//! | graph  | [`print_module`], [`print_func`] | [`parse_module`], [`parse_func`] |
//! | kernel | [`print_kernel`]                 | [`parse_kernel`]                 |
//! | plan   | [`print_plan`]                   | [`parse_plan`]                   |
//! | a file of any of them | `Display` of [`Item`] | [`Source::parse`]             |
//!
//! ```
//! let text = "func @twice(%x: f32[T, 8]) -> (f32[T, 8]) {\n  %y = add(%x, %x) : f32[T, 8]\n  return %y\n}\n";
//! let func = llmcc_ir::text::parse_func(text).unwrap();
//! assert_eq!(llmcc_ir::text::print_func(&func), text.replace("%y", "%1").replace("(%x: f32[T, 8])", "(\n  %x: f32[T, 8],\n)"));
//! ```

/// Appends formatted text to a `String`, which cannot fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {{
        use std::fmt::Write as _;
        let _ = write!($out, $($arg)*);
    }};
}

pub mod dot;
mod expr;
mod lex;
mod names;
mod output;
mod parse;
mod parse_graph;
mod parse_kernel;
mod parse_plan;
mod parse_state;
mod print_graph;
mod print_kernel;
mod print_plan;
mod render;
mod tap;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use print_graph::{print_func, print_module};
pub use print_kernel::print_kernel;
pub use print_plan::print_plan;
pub use render::{line_and_column, render};

use crate::diag::{Diagnostic, Place};
use crate::graph::{Func, Module};
use crate::kernel::Kernel;
use crate::plan::Plan;
use crate::verify::{verify_func, verify_kernel, verify_module, verify_plan};
use parse::Places;
pub(crate) use parse::{Parsed, Parser};
pub(crate) use parse_kernel::KernelReader;
use std::fmt;

/// Reads a module.
///
/// # Errors
/// Everything wrong with the text, at most 50 findings, in its order.
pub fn parse_module(text: &str) -> Result<Module, Vec<Diagnostic>> {
    one(text, parse_graph::module)
}

/// Reads a function.
///
/// # Errors
/// As [`parse_module`].
pub fn parse_func(text: &str) -> Result<Func, Vec<Diagnostic>> {
    one(text, parse_graph::func)
}

/// Reads a kernel.
///
/// # Errors
/// As [`parse_module`].
pub fn parse_kernel(text: &str) -> Result<Kernel, Vec<Diagnostic>> {
    one(text, parse_kernel::kernel)
}

/// Reads a plan.
///
/// # Errors
/// As [`parse_module`].
pub fn parse_plan(text: &str) -> Result<Plan, Vec<Diagnostic>> {
    one(text, parse_plan::plan)
}

/// Reads exactly one thing.
fn one<T>(text: &str, read: fn(&mut Parser) -> Parsed<T>) -> Result<T, Vec<Diagnostic>> {
    let mut p = Parser::new(text);
    let value = read(&mut p).and_then(|value| if p.at_end() { Ok(value) } else { Err(p.unexpected("nothing more")) });
    p.finish(value).map(|(value, _)| value)
}

/// A top-level thing of a `.lir` file.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// `module "…" { … }`
    Module(Module),
    /// `func @… { … }`
    Func(Func),
    /// `kernel @… { … }`
    Kernel(Kernel),
    /// `plan "…" { … }`
    Plan(Plan),
}

impl Item {
    /// The verifier's findings.
    pub fn findings(&self) -> Vec<Diagnostic> {
        match self {
            Item::Module(m) => verify_module(m),
            Item::Func(f) => verify_func(f),
            Item::Kernel(k) => verify_kernel(k),
            Item::Plan(p) => verify_plan(p),
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self {
            Item::Module(m) => print_module(m),
            Item::Func(func) => print_func(func),
            Item::Kernel(k) => print_kernel(k),
            Item::Plan(p) => print_plan(p),
        })
    }
}

/// A `.lir` file that has been read: its items, and where everything is, so that findings of the
/// verifier can be shown in the text.
#[derive(Debug)]
pub struct Source {
    /// The items in order.
    pub items: Vec<Item>,
    places: Places,
}

impl Source {
    /// Reads a file of any items.
    ///
    /// # Errors
    /// As [`parse_module`].
    pub fn parse(text: &str) -> Result<Source, Vec<Diagnostic>> {
        let mut p = Parser::new(text);
        let mut items = vec![];
        while !p.at_end() {
            p.statement(|_, word| ITEMS.contains(&word), &mut |p| {
                items.push(item(p)?);
                Ok(())
            });
        }
        let (items, places) = p.finish(Ok(items))?;
        Ok(Source { items, places })
    }

    /// The verifier's findings in all items, with their places in the text.
    pub fn findings(&self) -> Vec<Diagnostic> {
        self.items.iter().flat_map(Item::findings).map(|d| self.locate(d)).collect()
    }

    /// The diagnostic with its place found in the text, if it is there.
    ///
    /// Places go by names: where a file has several items of the same name, it is the last.
    pub fn locate(&self, mut d: Diagnostic) -> Diagnostic {
        if let Some(range) = self.places.get(&d.place) {
            d.place = Place::Text(range.clone());
        }
        d
    }
}

const ITEMS: &[&str] = &["module", "func", "kernel", "plan"];

fn item(p: &mut Parser) -> Parsed<Item> {
    match p.peek_word() {
        "module" => parse_graph::module(p).map(Item::Module),
        "func" => parse_graph::func(p).map(Item::Func),
        "kernel" => parse_kernel::kernel(p).map(Item::Kernel),
        "plan" => parse_plan::plan(p).map(Item::Plan),
        _ => Err(p.one_of("a top-level item", ITEMS)),
    }
}

/// Entry for fuzzing.
pub mod fuzz {
    use super::Source;

    /// Reads arbitrary bytes as text; accepted text must print and read back as itself, and the
    /// verifier must handle it.
    pub fn lir(data: &[u8]) {
        let text = String::from_utf8_lossy(data);
        match Source::parse(&text) {
            Err(errors) => {
                for e in errors {
                    super::render(&e, &text, "fuzz.lir");
                }
            }
            Ok(source) => {
                for finding in source.findings() {
                    super::render(&finding, &text, "fuzz.lir");
                }
                let printed: String = source.items.iter().map(ToString::to_string).collect();
                let again = Source::parse(&printed);
                // Compared as text: numbers that are not finite differ from themselves.
                let again = again.map(|s| s.items.iter().map(ToString::to_string).collect::<String>());
                assert_eq!(again.as_deref(), Ok(printed.as_str()), "printed text does not read back");
            }
        }
    }
}
