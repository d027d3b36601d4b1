//! Whether a binary runs on the platform that it is for: glibc 2.34 and what comes with it.

use crate::Failure;
use object::elf::FileHeader64;
use object::endian::Endianness;
use object::read::elf::{FileHeader, SectionHeader};
use std::collections::BTreeSet;
use std::path::Path;

/// The newest glibc whose symbols may be needed.
pub const GLIBC: (u32, u32) = (2, 34);
/// Shared libraries that every such system has.
pub const LIBRARIES: [&str; 8] = [
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
];

/// The shared libraries that a binary needs, and the versions of their symbols.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Names of libraries.
    pub libraries: BTreeSet<String>,
    /// Versions of symbols: `GLIBC_2.17`.
    pub versions: BTreeSet<String>,
}

impl Needs {
    /// Reads them from the ELF file at `path`.
    ///
    /// # Errors
    /// The file cannot be read, or is no ELF file with shared libraries.
    pub fn of(path: &Path) -> Result<Needs, Failure> {
        Needs::parse(&std::fs::read(path)?).map_err(|e| format!("{}: {e}", path.display()).into())
    }

    /// Reads them from the bytes of an ELF file.
    ///
    /// # Errors
    /// It is none, or has no table of shared libraries.
    pub fn parse(bytes: &[u8]) -> Result<Needs, Failure> {
        let header = FileHeader64::<Endianness>::parse(bytes)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, bytes)?;
        let mut needs = Needs::default();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let table = sections.dynamic_table(endian, bytes)?;
        for entry in table.iter() {
            if entry.tag == object::elf::DT_NEEDED {
                needs.libraries.insert(text(entry.string(table.strings())?));
            }
        }
        for section in sections.iter() {
            let Some((mut needed, link)) = section.gnu_verneed(endian, bytes)? else { continue };
            let strings = sections.strings(endian, bytes, link)?;
            while let Some((_, mut symbols)) = needed.next()? {
                while let Some(symbol) = symbols.next()? {
                    needs.versions.insert(text(symbol.name(endian, strings)?));
                }
            }
        }
        Ok(needs)
    }

    /// The newest glibc that the symbols name.
    pub fn newest(&self) -> Option<(u32, u32)> {
        self.versions.iter().filter_map(|v| glibc(v)).max()
    }

    /// Needs that the platform may lack: other libraries, symbols of a newer glibc.
    pub fn beyond(&self) -> Vec<String> {
        let libraries = self.libraries.iter().filter(|l| !LIBRARIES.contains(&l.as_str())).cloned();
        // Names without a number are newer, too: `GLIBC_ABI_DT_RELR` came with glibc 2.36.
        let newer =
            self.versions.iter().filter(|v| v.starts_with("GLIBC_") && glibc(v).is_none_or(|found| found > GLIBC));
        libraries.chain(newer.cloned()).collect()
    }
}

/// The version of glibc that a symbol's version names.
fn glibc(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.strip_prefix("GLIBC_")?.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}
