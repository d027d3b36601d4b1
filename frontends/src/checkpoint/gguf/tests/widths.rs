//! Widths of heads that GGUF files leave out.

use crate::arch::by_model_type;
use crate::checkpoint::gguf::families;
use crate::checkpoint::gguf::file::WITHOUT_WIDTH;
use std::collections::BTreeSet;

/// The classes that have no width of heads of their own are those whose architectures do not read it.
#[test]
fn classes_without_widths_of_their_own() {
    let declared = |name: &&str| {
        let arch = by_model_type(name).unwrap_or_else(|| panic!("{name} is an architecture"));
        arch.fields.iter().copied().flatten().any(|field| field.name == "head_dim")
    };
    let want: BTreeSet<&str> = families::all().map(|f| f.model_type.0).filter(|name| !declared(name)).collect();
    assert_eq!(WITHOUT_WIDTH.iter().copied().collect::<BTreeSet<_>>(), want);
}
