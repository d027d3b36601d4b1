//! Hashes by which the hub names files: SHA-256, or for small ones that of Git.

use crate::names;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// Digits of the hash of a small file.
const OF_GIT: usize = 40;
/// Digits of the hash of a large file.
const OF_LARGE: usize = 64;

/// A hash under way.
pub(crate) enum Digest {
    /// SHA-1 of a header of Git and the bytes.
    Git(Sha1),
    /// SHA-256 of the bytes.
    Large(Sha256),
}

impl Digest {
    /// The hash that a name is of, of a file of `size` bytes; `None` where the name is no hash.
    pub(crate) fn named(name: &str, size: u64) -> Option<Digest> {
        if names::is_hash(name, OF_LARGE) {
            return Some(Digest::Large(Sha256::new()));
        }
        names::is_hash(name, OF_GIT).then(|| {
            let mut sha = Sha1::new();
            sha.update(format!("blob {size}\0"));
            Digest::Git(sha)
        })
    }

    /// Whether it is a name that can be checked.
    pub(crate) fn is_name(name: &str) -> bool {
        names::is_hash(name, OF_LARGE) || names::is_hash(name, OF_GIT)
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Digest::Git(sha) => sha.update(bytes),
            Digest::Large(sha) => sha.update(bytes),
        }
    }

    /// The digits.
    pub(crate) fn finish(self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect();
        match self {
            Digest::Git(sha) => hex(&sha.finalize()),
            Digest::Large(sha) => hex(&sha.finalize()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_git_and_sha256sum() {
        // `printf hello | git hash-object --stdin`, `printf hello | sha256sum`.
        for want in [
            "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0",
            "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
        ] {
            let mut digest = Digest::named(want, 5).unwrap();
            digest.update(b"hel");
            digest.update(b"lo");
            assert_eq!(digest.finish(), want);
        }
        for bad in ["", "abc", "B6FC4C620B67D95F953A5C1C1230AAAB5DB5A1B0", "../../../../../../../../../../../../../aa"]
        {
            assert!(Digest::named(bad, 0).is_none() && !Digest::is_name(bad), "{bad}");
        }
    }
}
