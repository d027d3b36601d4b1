//! Joules that the machine takes: RAPL's counters of processors (`/sys/class/powercap`), NVML's of GPUs.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::ptr;

/// Counters, and their values when they were first read.
pub(super) struct Meter {
    zones: Vec<Zone>,
    gpu: Option<(Gpu, f64)>,
}

/// A counter of RAPL's.
struct Zone {
    path: PathBuf,
    /// Microjoules at the start.
    start: u64,
    /// Where it begins at 0 again.
    range: u64,
}

impl Meter {
    /// Reads all counters that this process may read: of processors and their memory, and with `gpu` of the first GPU.
    /// `None`: there is none.
    pub fn start(gpu: bool) -> Option<Meter> {
        let zones = zones(Path::new("/sys/class/powercap"));
        let gpu = if gpu { Gpu::open().and_then(|gpu| gpu.joules().map(|joules| (gpu, joules))) } else { None };
        (!zones.is_empty() || gpu.is_some()).then_some(Meter { zones, gpu })
    }

    /// Joules since then. (A counter that began at 0 again has done so once: at 100 W that takes most of an hour.)
    pub fn joules(&self) -> f64 {
        let of = |zone: &Zone| {
            let now = count(&zone.path.join("energy_uj")).unwrap_or(zone.start);
            now.checked_sub(zone.start).unwrap_or(now + zone.range.saturating_sub(zone.start)) as f64 * 1e-6
        };
        let gpu = self.gpu.as_ref().and_then(|(gpu, start)| Some(gpu.joules()? - start));
        self.zones.iter().map(of).sum::<f64>() + gpu.unwrap_or(0.0)
    }
}

/// The counters of packages and of their memory, which packages do not include.
fn zones(folder: &Path) -> Vec<Zone> {
    let Ok(all) = fs::read_dir(folder) else { return vec![] };
    let zone = |path: PathBuf| {
        let name = fs::read_to_string(path.join("name")).ok()?;
        let wanted = name.starts_with("package") || name.trim() == "dram";
        let start = count(&path.join("energy_uj")).filter(|_| wanted)?;
        Some(Zone { start, range: count(&path.join("max_energy_range_uj")).unwrap_or(0), path })
    };
    let mut found: Vec<Zone> = all.flatten().filter_map(|entry| zone(entry.path())).collect();
    // (`intel-rapl-mmio` counts the same packages once more.)
    let mmio = |zone: &Zone| zone.path.to_string_lossy().contains("mmio");
    if found.iter().any(|zone| !mmio(zone)) {
        found.retain(|zone| !mmio(zone));
    }
    found
}

fn count(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The first GPU, by the driver's management library.
struct Gpu {
    library: libloading::Library,
    device: *mut c_void,
}

type Energy = unsafe extern "C" fn(*mut c_void, *mut c_ulonglong) -> c_int;

impl Gpu {
    fn open() -> Option<Gpu> {
        // SAFETY: the driver's own library, whose initialisers do no more than libraries do.
        let library = unsafe { libloading::Library::new("libnvidia-ml.so.1") }.ok()?;
        let mut device = ptr::null_mut();
        // SAFETY: functions of these types by NVML's documentation; the pointer is valid.
        let status = unsafe {
            let start = library.get::<unsafe extern "C" fn() -> c_int>("nvmlInit_v2").ok()?;
            let find = library
                .get::<unsafe extern "C" fn(c_uint, *mut *mut c_void) -> c_int>("nvmlDeviceGetHandleByIndex_v2")
                .ok()?;
            if start() == 0 { find(0, &mut device) } else { 1 }
        };
        (status == 0).then_some(Gpu { library, device })
    }

    /// Joules since the driver was loaded (`nvmlDeviceGetTotalEnergyConsumption`, Volta and later).
    fn joules(&self) -> Option<f64> {
        let mut millijoules = 0;
        // SAFETY: the device is NVML's, the pointer valid.
        let status = unsafe {
            let read = self.library.get::<Energy>("nvmlDeviceGetTotalEnergyConsumption").ok()?;
            read(self.device, &mut millijoules)
        };
        (status == 0).then_some(millijoules as f64 * 1e-3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_and_their_memory_count() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let write = |zone: &str, name: &str, joules: u64| {
            let folder = dir.path().join(zone);
            fs::create_dir_all(&folder).expect("made");
            for (file, text) in [
                ("name", format!("{name}\n")),
                ("energy_uj", format!("{}\n", joules * 1_000_000)),
                ("max_energy_range_uj", "100000000\n".into()),
            ] {
                fs::write(folder.join(file), text).expect("written");
            }
        };
        let all = [("rapl:0", "package-0"), ("rapl:0:0", "core"), ("rapl:0:1", "dram"), ("rapl-mmio:0", "package-0")];
        all.iter().for_each(|(zone, name)| write(zone, name, 90));
        let meter = Meter { zones: zones(dir.path()), gpu: None };
        assert_eq!((meter.zones.len(), meter.joules()), (2, 0.0));
        // The package's counter begins anew at 100 J.
        all.iter().zip([5, 95, 91, 5]).for_each(|((zone, name), joules)| write(zone, name, joules));
        assert!((meter.joules() - 16.0).abs() < 1e-9, "{}", meter.joules());
        assert!(zones(Path::new("/nonexistent")).is_empty());
    }
}
