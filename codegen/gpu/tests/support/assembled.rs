//! Registers of kernels by the hash of everything that decides on them: kernels that tests have seen
//! before are neither lowered nor assembled again, which takes `ptxas` minutes.
//!
//! `LLMCC_UPDATE_ASSEMBLED=1 cargo test -p llmcc-gpu --features llvm` adds new kernels to the file.
//! Without a kernel's line its test takes longer, and says the same.

use llmcc_gpu::Source;
use llmcc_gpu::assembler::{Assembled, Ptxas, wanted_resident};
use llmcc_gpu::llvm::Compiler;
use llmcc_gpu::worker::Stage;
use llmcc_ir::target::GpuArch;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

/// A line has a hash, registers, bytes of stack, of spill stores and of spill loads, and the number of blocks that a
/// multiprocessor is to hold.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/assembled.txt");

type Known = BTreeMap<String, [u32; 5]>;

fn known() -> &'static Mutex<Known> {
    static KNOWN: OnceLock<Mutex<Known>> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let line = |line: &str| {
            let (hash, numbers) = line.split_once(' ')?;
            let numbers: Vec<u32> = numbers.split(' ').map(|n| n.parse().ok()).collect::<Option<_>>()?;
            Some((hash.to_owned(), numbers.try_into().ok()?))
        };
        let text = std::fs::read_to_string(FILE).unwrap_or_default();
        Mutex::new(text.lines().map(|l| line(l).unwrap_or_else(|| panic!("{FILE}: {l}"))).collect())
    })
}

/// The versions of LLVM and of `ptxas`.
fn versions(ptxas: &Ptxas) -> &'static str {
    static VERSIONS: OnceLock<String> = OnceLock::new();
    VERSIONS.get_or_init(|| format!("{:?} {}", inkwell::support::get_llvm_version(), ptxas.version().unwrap()))
}

/// A kernel's registers and spills, without its machine code, and the blocks that a multiprocessor is to hold.
pub fn assembled(ptxas: &Ptxas, source: &Source, gpu: &GpuArch) -> (Assembled, u32) {
    let mut hash = Sha256::new();
    for part in [source.mlir.as_str(), gpu.processor, gpu.ptx, versions(ptxas)] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    let hash: String = hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let lock = || known().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some([registers, stack, stores, loads, wanted]) = lock().get(&hash).copied() {
        return (Assembled { registers, spills: [stack, stores, loads], ..Assembled::default() }, wanted);
    }
    let ptx = Compiler::new().lower(&source.mlir, gpu.processor, gpu.ptx, Stage::Ptx).unwrap();
    let (made, wanted) = (ptxas.assemble(&ptx, gpu.processor).unwrap(), wanted_resident(&ptx));
    if made.warnings.is_empty() && std::env::var_os("LLMCC_UPDATE_ASSEMBLED").is_some() {
        let mut known = lock();
        let [stack, stores, loads] = made.spills;
        known.insert(hash, [made.registers, stack, stores, loads, wanted]);
        let line = |(hash, n): (&String, &[u32; 5])| format!("{hash} {}\n", n.map(|n| n.to_string()).join(" "));
        std::fs::write(FILE, known.iter().map(line).collect::<String>()).unwrap();
    }
    (made, wanted)
}
