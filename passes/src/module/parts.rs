//! Functions for parts of the layers: layers of one function share the forms of their weights, layers of several
//! functions may differ. Kernels that are alike are compiled once, whichever functions have them.

use llmcc_ir::graph::{Call, Func, Module};

/// A function that was made of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// Index of the function that it computes.
    pub of: usize,
    /// Number of the part of its calls.
    pub part: usize,
}

/// Divides the calls of each function, in their order, into at most `most` parts of about the same size, each with a
/// function of its own. Returns the part that each function is then. Calls with the same weights and states belong to
/// the same part.
pub fn divide(module: &mut Module, most: usize) -> Vec<Part> {
    let mut parts: Vec<Part> = (0..module.funcs.len()).map(|of| Part { of, part: 0 }).collect();
    for of in 0..module.funcs.len() {
        let bindings = bindings(module, of);
        let count = bindings.len().min(most);
        let part_of = |call: &Call| bindings.iter().position(|b| b.binds_as(call)).map(|i| i * count / bindings.len());
        let first = module.funcs.len();
        for entry in &mut module.entries {
            for call in entry.calls.iter_mut().filter(|c| c.func == of) {
                if let Some(part) = part_of(call).filter(|part| *part > 0) {
                    call.func = first + part - 1;
                }
            }
        }
        for part in 1..count {
            let func = Func { name: free_name(module, of, part), ..module.funcs[of].clone() };
            module.funcs.push(func);
            parts.push(Part { of, part });
        }
    }
    parts
}

/// The calls of a function that differ in their weights or states.
fn bindings(module: &Module, of: usize) -> Vec<Call> {
    let mut found: Vec<Call> = vec![];
    for call in module.calls().filter(|c| c.func == of) {
        if !found.iter().any(|known| known.binds_as(call)) {
            found.push(call.clone());
        }
    }
    found
}

/// A name for a part that no function has.
fn free_name(module: &Module, of: usize, part: usize) -> String {
    let mut name = format!("{}.{part}", module.funcs[of].name);
    while module.funcs.iter().any(|f| f.name == name) {
        name.push('x');
    }
    name
}
