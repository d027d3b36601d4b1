//! Versions of the C API.

use crate::capi::LLMCC_ABI_VERSION;
use std::fmt;

/// A version of the C API. Programs for one work with artifacts of the same major version and at
/// least the same minor one. While llmcc's own version begins with 0, each minor version of llmcc may
/// raise the major version of its C API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Changes when programs must be compiled again.
    pub major: u32,
    /// Changes when something is added.
    pub minor: u32,
}

impl Version {
    /// The version that this crate is written for.
    pub const OWN: Version = Version::of(LLMCC_ABI_VERSION);

    /// From the result of `llmcc_abi_version`.
    pub const fn of(raw: u32) -> Version {
        Version { major: raw >> 16, minor: raw & 0xFFFF }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}
