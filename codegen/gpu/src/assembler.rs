//! NVIDIA's `ptxas` and disassemblers, where they are installed.

use llmcc_ir::gpu::WARP;
use llmcc_ir::target::GpuArch;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `ptxas`.
#[derive(Clone, Debug)]
pub struct Ptxas {
    program: PathBuf,
}

/// The result of `ptxas` for a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembled {
    /// Machine code.
    pub cubin: Vec<u8>,
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of stack, spill stores and spill loads.
    pub spills: [u32; 3],
    /// Its warnings, and its notes on performance (`C7510` and the like).
    pub warnings: Vec<String>,
}

impl Ptxas {
    /// The program that `LLMCC_PTXAS` names, else the one on the search path.
    pub fn find() -> Option<Ptxas> {
        tool("LLMCC_PTXAS", "ptxas").map(|program| Ptxas { program })
    }

    /// The last line that the program prints of its version, which names its build.
    ///
    /// # Errors
    /// Why it cannot be run.
    pub fn version(&self) -> Result<String, String> {
        let out = Command::new(&self.program).arg("--version").output();
        let out = out.map_err(|e| format!("cannot run {}: {e}", self.program.display()))?;
        Ok(String::from_utf8_lossy(&out.stdout).lines().last().unwrap_or_default().to_owned())
    }

    /// Assembles one kernel for `processor` (`sm_90a`).
    ///
    /// # Errors
    /// Errors of `ptxas`, or why it cannot be run.
    pub fn assemble(&self, ptx: &str, processor: &str) -> Result<Assembled, String> {
        let fail = |e: std::io::Error| format!("cannot run {}: {e}", self.program.display());
        let dir = tempfile::tempdir().map_err(fail)?;
        let (from, to) = (dir.path().join("kernel.ptx"), dir.path().join("kernel.cubin"));
        std::fs::write(&from, ptx).map_err(fail)?;
        let out = Command::new(&self.program)
            .arg("-v")
            .arg(format!("-arch={processor}"))
            .arg(&from)
            .arg("-o")
            .arg(&to)
            .output()
            .map_err(fail)?;
        let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        let said = said.replace(&from.display().to_string(), "kernel.ptx");
        if !out.status.success() {
            return Err(format!("ptxas: {}", said.trim()));
        }
        let cubin = std::fs::read(&to).map_err(fail)?;
        Ok(Assembled { cubin, ..report(&said) })
    }
}

impl Assembled {
    /// Blocks of so many threads and bytes of shared memory that a multiprocessor holds at once.
    /// Warps get registers by 256; each block loses 1 KiB of shared memory to the system.
    pub fn resident(&self, gpu: &GpuArch, threads: u32, shared: u32) -> u32 {
        let registers =
            self.registers.max(1).next_multiple_of(8) * threads.next_multiple_of(WARP as u32).max(WARP as u32);
        let room = (gpu.registers / registers).min(gpu.shared_per_sm / (shared + 1024));
        room.min(gpu.threads_per_sm / threads.max(1)).min(gpu.blocks_per_sm)
    }
}

/// Blocks on a multiprocessor that a kernel counts on: `.minnctapersm` of its PTX, else 1.
pub fn wanted_resident(ptx: &str) -> u32 {
    let number = ptx.split_once(".minnctapersm").map_or("", |(_, rest)| rest.trim_start());
    let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    number[..end].parse().unwrap_or(1)
}

/// Reads the report of `ptxas -v`.
fn report(said: &str) -> Assembled {
    let mut out = Assembled::default();
    let number_before = |line: &str, what: &str| -> Option<u32> {
        let end = line.find(what)?;
        line[..end].trim_end().rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    for line in said.lines() {
        for (what, to) in [("bytes stack frame", 0), ("bytes spill stores", 1), ("bytes spill loads", 2)] {
            out.spills[to] = number_before(line, what).unwrap_or(out.spills[to]);
        }
        out.registers = number_before(line, "registers").unwrap_or(out.registers);
        // Notes with a number are about performance: C7510 says that `wgmma` was serialized.
        if line.contains("warning") || line.contains("(C7") {
            out.warnings.push(line.trim().to_string());
        }
    }
    out
}

/// Disassembles machine code with `nvdisasm` or `cuobjdump`, if installed.
///
/// # Errors
/// Neither is there, or it fails.
pub fn disassemble(cubin: &[u8]) -> Result<String, String> {
    let missing = "SASS needs nvdisasm or cuobjdump (PyPI: nvidia-cuda-nvdisasm, nvidia-cuda-cuobjdump) on the search path, or named by LLMCC_NVDISASM";
    let (program, options) = match (tool("LLMCC_NVDISASM", "nvdisasm"), tool("LLMCC_CUOBJDUMP", "cuobjdump")) {
        (Some(p), _) => (p, "-c"),
        (None, Some(p)) => (p, "-sass"),
        (None, None) => return Err(missing.into()),
    };
    let fail = |e: std::io::Error| format!("cannot run {}: {e}", program.display());
    let dir = tempfile::tempdir().map_err(fail)?;
    let file = dir.path().join("kernel.cubin");
    std::fs::write(&file, cubin).map_err(fail)?;
    let out = Command::new(&program).arg(options).arg(&file).output().map_err(fail)?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    Err(format!("{}: {}", program.display(), String::from_utf8_lossy(&out.stderr).trim()))
}

/// The program named by an environment variable, else by name on the search path.
fn tool(variable: &str, name: &str) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable).filter(|p| !p.is_empty()) {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p: &PathBuf| Path::is_file(p))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_report() {
        let said = "ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function 'k' for 'sm_90a'\nptxas info    : Function properties for k\n    \
                    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\nptxas info    : Used 40 registers, used 1 barriers, 16 bytes smem\n\
                    ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized";
        let r = report(said);
        assert_eq!((r.registers, r.spills, r.warnings.len()), (40, [16, 4, 8], 1));
    }

    /// Each of the limits, by hand.
    #[test]
    fn blocks_that_fit() {
        let gpu = llmcc_ir::target::find("sm89").and_then(|t| t.gpu()).unwrap();
        let of = |registers| Assembled { registers, ..Assembled::default() };
        assert_eq!(of(33).resident(gpu, 256, 0), 6, "1536 threads");
        assert_eq!(of(65).resident(gpu, 256, 0), 3, "72 registers of each of 256 threads");
        assert_eq!(of(33).resident(gpu, 256, 33 << 10), 2, "100 KiB, of which each block loses one");
        assert_eq!(of(16).resident(gpu, 32, 0), 24);
        assert_eq!(wanted_resident(".maxntid 256\n.minnctapersm 3\n{"), 3);
        assert_eq!(wanted_resident(".maxntid 256"), 1);
    }
}
