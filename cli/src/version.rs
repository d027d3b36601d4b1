//! Which llmcc this is: `llmcc --version`.
//!
//! Nothing here but [`VERSION`] goes into artifacts, whose bytes do not depend on the commit.

use std::sync::LazyLock;

/// The version, which artifacts name.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit of the sources, `unknown` where nobody says it.
pub const COMMIT: &str = env!("LLMCC_BUILT_FROM");

/// The licences of the software in this program. `llmcc-dist notices` writes them from Cargo's graph.
pub const LICENSES: &str = include_str!("../third-party.txt");

/// Version, commit, features and ABI, a line each.
pub fn long() -> &'static str {
    static LONG: LazyLock<String> = LazyLock::new(|| {
        let features = if cfg!(feature = "gpu") { "cpu, gpu" } else { "cpu" };
        format!(
            "{VERSION}\ncommit    {COMMIT}\nfeatures  {features}\nABI       C API {}, artifacts {}",
            llmcc_model::Version::OWN,
            llmcc_abi::ABI_VERSION
        )
    });
    &LONG
}
