//! Memory available to this process: the machine's, less the limits of control groups and
//! resources.
//!
//! Containers are groups of processes with a limit each, in one tree (version 2) or in one per
//! resource (version 1). A limit of a group holds for all groups in it, so all limits from the
//! process' own group up to the root count; limits above the root of a container's name space are
//! not seen. Limits of a tree are found by its mount: a container sees its own group at the top of
//! the mount, under a path that it may not have.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Bytes of memory that this process may use, or `None` when the system does not tell.
pub fn memory() -> Option<u64> {
    let limits = [physical(), cgroups(Path::new("/")), address_space(Path::new("/"))];
    limits.into_iter().flatten().min()
}

/// Bytes of physical memory.
fn physical() -> Option<u64> {
    // SAFETY: sysconf has no preconditions.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).ok()?.checked_mul(u64::try_from(size).ok()?)
}

/// The rest that `RLIMIT_AS` and `RLIMIT_DATA` leave: they limit nearly all mappings, so existing
/// mappings count.
fn address_space(root: &Path) -> Option<u64> {
    let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    let left = |resource, line: &str| {
        // SAFETY: the limit is written by the call, if it succeeds.
        let limit = unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            (libc::getrlimit(resource, &mut limit) == 0).then_some(limit.rlim_cur)?
        };
        (limit != libc::RLIM_INFINITY).then(|| limit.saturating_sub(kilobytes(&status, line).unwrap_or(0) << 10))
    };
    let limits = [left(libc::RLIMIT_AS, "VmSize:"), left(libc::RLIMIT_DATA, "VmData:")];
    limits.into_iter().flatten().min()
}

fn kilobytes(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|l| l.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// The least limit of the control groups that this process is in. `root` is `/`, or a folder with
/// files like those there.
fn cgroups(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let of_mount = |m: Mount| {
        let group = groups.lines().find_map(|line| m.group(line))?;
        let top = root.join(m.at.strip_prefix('/').unwrap_or(&m.at));
        // A group outside the mount is not seen, but the mount's top may have a limit.
        let inside = Path::new(&group).strip_prefix(&m.root).unwrap_or(Path::new(""));
        let names = inside.components().filter(|c| matches!(c, Component::Normal(_)));
        let paths = names.scan(PathBuf::new(), |path, name| {
            path.push(name);
            Some(path.clone())
        });
        let folders = [PathBuf::new()].into_iter().chain(paths);
        folders.flat_map(|f| m.files().iter().map(move |name| f.join(name))).filter_map(|f| limit(&top.join(f))).min()
    };
    mounts.lines().filter_map(Mount::of).filter_map(of_mount).min()
}

/// A mounted tree of groups.
struct Mount {
    /// The group at its top.
    root: String,
    /// Where it is mounted.
    at: String,
    unified: bool,
}

impl Mount {
    /// Reads a line of `mountinfo`, if it is one with limits of memory.
    fn of(line: &str) -> Option<Mount> {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let unified = match kind.next()? {
            "cgroup2" => true,
            "cgroup" if kind.nth(1)?.split(',').any(|o| o == "memory") => false,
            _ => return None,
        };
        let mut fields = mount.split(' ').skip(3).map(unescaped);
        Some(Mount { root: fields.next()?, at: fields.next()?, unified })
    }

    /// The path of the process' group in this tree, of a line of `/proc/self/cgroup`.
    fn group(&self, line: &str) -> Option<String> {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let this = if self.unified { controllers.is_empty() } else { controllers.split(',').any(|c| c == "memory") };
        this.then(|| path.to_owned())
    }

    /// Files with limits: that above which processes are ended, and that above which they are held
    /// up.
    fn files(&self) -> &'static [&'static str] {
        if self.unified { &["memory.max", "memory.high"] } else { &["memory.limit_in_bytes"] }
    }
}

/// `mountinfo` writes spaces and the like as three octal digits.
fn unescaped(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(char::from(byte));
                out += &part[3..];
            }
            None => {
                out.push('\\');
                out += part;
            }
        }
    }
    out
}

/// The limit in a file: `max`, or bytes; a value larger than any machine's memory means none, too.
fn limit(path: &Path) -> Option<u64> {
    let bytes: u64 = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    Some(bytes).filter(|b| *b < 1 << 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit that a system with these files has.
    fn with(files: &[(&str, &str)]) -> Option<u64> {
        static NUMBER: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let n = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("llmcc-limits-{}-{n}", std::process::id()));
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = cgroups(&root);
        let _ = fs::remove_dir_all(&root);
        found
    }

    const V2: &str = "31 23 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "30 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      36 25 0:32 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n";

    #[test]
    fn all_groups_up_to_the_root_count() {
        let nested = |own: &str, above: &str| {
            with(&[
                ("proc/self/cgroup", "0::/user.slice/a b.scope\n"),
                ("proc/self/mountinfo", V2),
                ("sys/fs/cgroup/user.slice/a b.scope/memory.max", own),
                ("sys/fs/cgroup/user.slice/memory.max", above),
            ])
        };
        assert_eq!(nested("67108864\n", "max\n"), Some(64 << 20));
        assert_eq!(nested("max\n", "67108864\n"), Some(64 << 20));
        assert_eq!(nested("67108864\n", "33554432\n"), Some(32 << 20));
        assert_eq!(nested("max\n", "max\n"), None);
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn limits_that_hold_processes_up_count() {
        let files = [
            ("proc/self/cgroup", "0::/a\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/a/memory.max", "1000000000\n"),
            ("sys/fs/cgroup/a/memory.high", "500000000\n"),
        ];
        assert_eq!(with(&files), Some(500_000_000));
    }

    #[test]
    fn a_container_sees_its_group_at_the_top() {
        // With a name space of its own, and without: the group's path is not below the mount.
        for group in ["0::/\n", "0::/docker/0123\n", "0::/../other\n"] {
            for mount in [V2, "31 23 0:27 /docker/0123 /sys/fs/cgroup ro - cgroup2 cgroup rw\n"] {
                let files = [
                    ("proc/self/cgroup", group),
                    ("proc/self/mountinfo", mount),
                    ("sys/fs/cgroup/memory.max", "1048576\n"),
                ];
                assert_eq!(with(&files), Some(1 << 20), "{group} {mount}");
            }
        }
    }

    #[test]
    fn version_1_has_a_tree_for_memory() {
        let of = |own: &str| {
            with(&[
                ("proc/self/cgroup", "5:cpu:/b\n4:hugetlb,memory:/a/c\n0::/\n"),
                ("proc/self/mountinfo", V1),
                ("sys/fs/cgroup/memory/a/c/memory.limit_in_bytes", own),
                ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ])
        };
        assert_eq!(of("1048576\n"), Some(1 << 20));
        assert_eq!(of("9223372036854771712\n"), None);
    }

    #[test]
    fn odd_mount_points_are_read() {
        assert_eq!(unescaped("/a\\040b\\134c"), "/a b\\c");
        assert!(Mount::of("no line").is_none() && Mount::of("1 2 0:3 / / rw - ext4 x rw").is_none());
        assert_eq!(kilobytes("VmPeak:\t  10 kB\nVmSize:\t  2048 kB\n", "VmSize:"), Some(2048));
        assert!(memory().is_some_and(|bytes| bytes > 0));
    }
}
