//! The processors this process may use, and threads that stay on one of them.

use std::collections::BTreeSet;
use std::{fs, io, mem, thread};

/// Processors this process may use, by affinity and cgroup quota.
pub fn available() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Physical cores among the processors in our affinity mask, if the system tells.
pub fn physical() -> Option<usize> {
    let cores: BTreeSet<String> = allowed().ok()?.into_iter().map(siblings).collect::<Option<_>>()?;
    (!cores.is_empty()).then_some(cores.len())
}

/// The processors in our affinity mask in the order in which threads should take them: one of each
/// physical core before any second one, because hyper-threads share the units that the kernels keep
/// busy. Empty if the system does not tell.
pub fn in_order() -> Vec<usize> {
    let mut seen = BTreeSet::new();
    let (first, second): (Vec<usize>, Vec<usize>) =
        allowed().unwrap_or_default().into_iter().partition(|&cpu| siblings(cpu).is_none_or(|core| seen.insert(core)));
    first.into_iter().chain(second).collect()
}

/// The processors of the core that `cpu` belongs to, as the system writes them.
fn siblings(cpu: usize) -> Option<String> {
    fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")).ok()
}

/// The affinity mask of the calling thread.
fn mask() -> io::Result<libc::cpu_set_t> {
    // SAFETY: the kernel fills the set.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&set), &mut set) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(set)
    }
}

fn allowed() -> io::Result<Vec<usize>> {
    let set = mask()?;
    // SAFETY: indices are within the set.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

/// The calling thread on one processor, until this is dropped; then wherever it was allowed before.
/// Where the system refuses, nothing changes.
pub struct Pinned(Option<libc::cpu_set_t>);

impl Pinned {
    /// Pins the calling thread to `cpu`.
    pub fn to(cpu: usize) -> Pinned {
        let Ok(before) = mask() else { return Pinned(None) };
        // SAFETY: plain integers.
        let mut one: libc::cpu_set_t = unsafe { mem::zeroed() };
        // SAFETY: a set of our own; processors beyond its size are not in an affinity mask.
        unsafe { libc::CPU_SET(cpu, &mut one) };
        Pinned(set(&one).then_some(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            set(before);
        }
    }
}

fn set(mask: &libc::cpu_set_t) -> bool {
    // SAFETY: the kernel reads the set.
    unsafe { libc::sched_setaffinity(0, size_of_val(mask), mask) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_processor_once_and_cores_first() {
        let (order, mut sorted) = (in_order(), in_order());
        sorted.sort_unstable();
        assert_eq!(sorted, allowed().unwrap());
        let cores: BTreeSet<_> = order.iter().take(physical().unwrap_or(0)).map(|&cpu| siblings(cpu)).collect();
        assert_eq!(cores.len(), physical().unwrap_or(0));
    }

    #[test]
    fn a_pinned_thread_is_on_its_processor_and_free_afterwards() {
        let before = allowed().unwrap();
        let cpu = *before.last().unwrap();
        {
            let _pinned = Pinned::to(cpu);
            assert_eq!(allowed().unwrap(), [cpu]);
        }
        assert_eq!(allowed().unwrap(), before);
    }
}
