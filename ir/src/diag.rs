//! Diagnostics: a fault, its place, the remedy.
//!
//! The text reader and the verifiers *collect* diagnostics, so that one run shows every mistake. A
//! [`Place`] names things the way `.lir` text and checkpoints do; only the text reader knows byte
//! positions.

use std::fmt;
use std::ops::Range;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The thing cannot be used.
    Error,
    /// The input can be used, but is probably a mistake.
    Warning,
}

impl Severity {
    /// `error` or `warning`.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// Where it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub enum Place {
    /// The module or plan as a whole.
    #[default]
    Whole,
    /// Byte range of the source text.
    Text(Range<usize>),
    /// A function.
    Func {
        /// Name of the function.
        func: String,
    },
    /// A parameter of a function.
    FuncParam {
        /// Name of the function.
        func: String,
        /// Name of the parameter.
        param: String,
    },
    /// An operation of a function.
    Node {
        /// Name of the function.
        func: String,
        /// Index in the function's nodes.
        node: usize,
        /// Name of the operation.
        op: &'static str,
    },
    /// A call of the step.
    Call {
        /// Index in the step.
        call: usize,
        /// Name of the called function, or its number if there is none.
        func: String,
    },
    /// A weight or tensor.
    Tensor {
        /// Its name.
        name: String,
    },
    /// A state of the sequences.
    State {
        /// Index in the module or plan.
        index: usize,
    },
    /// A kernel.
    Kernel {
        /// Name of the kernel.
        kernel: String,
    },
    /// An operand of a kernel.
    KernelParam {
        /// Name of the kernel.
        kernel: String,
        /// Name of the operand.
        param: String,
    },
    /// An output of a matmul or pointwise kernel.
    Segment {
        /// Name of the kernel.
        kernel: String,
        /// Index of the segment.
        segment: usize,
    },
    /// An operation of the skeleton of a GPU kernel.
    GpuOp {
        /// Name of the kernel.
        kernel: String,
        /// Number of the operation, as printed.
        op: usize,
        /// The operation, as printed.
        text: String,
    },
    /// A launch sequence of a plan.
    Regime {
        /// Index in the plan.
        regime: usize,
    },
    /// A launch.
    Launch {
        /// Index of the regime.
        regime: usize,
        /// Index of the launch in it.
        launch: usize,
        /// Name of the kernel, or its number if there is none.
        kernel: String,
    },
    /// An activation buffer.
    Buffer {
        /// Index of the regime.
        regime: usize,
        /// Index of the buffer in it.
        buffer: usize,
    },
    /// A memory slot.
    Slot {
        /// Index in the plan.
        slot: usize,
    },
    /// A packed weight of a plan.
    PackedWeight {
        /// Index in the plan.
        weight: usize,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Whole => Ok(()),
            Place::Text(r) => write!(f, "byte {}", r.start),
            Place::Func { func } => write!(f, "function `{func}`"),
            Place::FuncParam { func, param } => write!(f, "function `{func}`, parameter `{param}`"),
            Place::Node { func, node, op } => write!(f, "function `{func}`, node {node} (`{op}`)"),
            Place::Call { call, func } => write!(f, "call {call} of `{func}`"),
            Place::Tensor { name } => write!(f, "tensor `{name}`"),
            Place::State { index } => write!(f, "state {index}"),
            Place::Kernel { kernel } => write!(f, "kernel `{kernel}`"),
            Place::KernelParam { kernel, param } => write!(f, "kernel `{kernel}`, operand `{param}`"),
            Place::Segment { kernel, segment } => write!(f, "kernel `{kernel}`, segment {segment}"),
            Place::GpuOp { kernel, op, text } => write!(f, "kernel `{kernel}`, operation {op} (`{text}`)"),
            Place::Regime { regime } => write!(f, "regime {regime}"),
            Place::Launch { regime, launch, kernel } => write!(f, "regime {regime}, launch {launch} of `{kernel}`"),
            Place::Buffer { regime, buffer } => write!(f, "regime {regime}, buffer {buffer}"),
            Place::Slot { slot } => write!(f, "slot {slot}"),
            Place::PackedWeight { weight } => write!(f, "packed weight {weight}"),
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Diagnostic {
    /// How bad.
    pub severity: Severity,
    /// Stable name of the broken rule (`kebab-case`), for tests and for looking it up in the
    /// documentation.
    pub code: &'static str,
    /// The fault, in one sentence without a full stop.
    pub message: String,
    /// Where.
    pub place: Place,
    /// The remedy, where one is known.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error at a place.
    pub fn error(code: &'static str, place: Place, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Error, code, message: message.into(), place, help: None }
    }

    /// The same with advice.
    pub fn with_help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }

    /// Renders it with the line of `source` it points into, if its place is [`Place::Text`]; else
    /// as [`fmt::Display`].
    pub fn render(&self, source: &str) -> String {
        let Place::Text(range) = &self.place else { return self.to_string() };
        let at = floor_char_boundary(source, range.start);
        let start = source[..at].rfind('\n').map_or(0, |i| i + 1);
        let line = source[start..].lines().next().unwrap_or("");
        let number = source[..start].matches('\n').count() + 1;
        let column = source[start..at].chars().count();
        let end = floor_char_boundary(source, range.end).clamp(at, start + line.len().max(at - start));
        let width = source[at..end].chars().count().max(1);
        let head = format!("{}[{}]: {}", self.severity.name(), self.code, self.message);
        let gutter = " ".repeat(number.to_string().len());
        let mut text = format!(
            "{head}\n{gutter}--> {number}:{}\n{gutter} |\n{number} | {line}\n{gutter} | {}{}",
            column + 1,
            " ".repeat(column),
            "^".repeat(width)
        );
        if let Some(help) = &self.help {
            text.push_str(&format!("\n{gutter} = help: {help}"));
        }
        text
    }
}

fn floor_char_boundary(s: &str, at: usize) -> usize {
    let at = at.min(s.len());
    (0..=at).rev().find(|i| s.is_char_boundary(*i)).unwrap_or(0)
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]: ", self.severity.name(), self.code)?;
        if self.place != Place::Whole {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, " (help: {help})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Diagnostic {}

/// Several diagnostics as one error, one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// `Ok` unless there is an error among them.
    ///
    /// # Errors
    /// All diagnostics, warnings included, if one is an error.
    pub fn check(self) -> Result<(), Diagnostics> {
        if self.0.iter().any(|d| d.severity == Severity::Error) { Err(self) } else { Ok(()) }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, d) in self.0.iter().enumerate() {
            write!(f, "{}{d}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_places_show_their_line() {
        let d =
            Diagnostic::error("unknown-op", Place::Text(9..12), "no operation `ädd`").with_help("did you mean `add`?");
        let shown = d.render("func f\n  ädd a b\n");
        assert_eq!(
            shown,
            "error[unknown-op]: no operation `ädd`\n --> 2:3\n  |\n2 |   ädd a b\n  |   ^^\n  = help: did you mean `add`?"
        );
        assert!(d.render("").contains("1:1"), "a position past the end does not panic");
    }

    #[test]
    fn places_read_as_sentences() {
        let place = Place::Launch { regime: 1, launch: 4, kernel: "layer0.matmul2".into() };
        let d = Diagnostic::error("launch-operands", place, "has 3 operands, not 4");
        assert_eq!(
            d.to_string(),
            "error[launch-operands]: regime 1, launch 4 of `layer0.matmul2`: has 3 operands, not 4"
        );
    }
}
