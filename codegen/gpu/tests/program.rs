//! The program `llmcc-cuda` lowers as LLVM in this process does.

use llmcc_gpu::worker::{Llvm, Stage, Worker, WorkerError};
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_llmcc-cuda");

fn said(arguments: &[&str]) -> (Option<i32>, String) {
    let done = Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).output().expect("runs");
    (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned())
}

#[test]
fn it_says_its_version_and_licences() {
    assert_eq!(said(&["--version"]), (Some(0), format!("llmcc-cuda {}\n", env!("CARGO_PKG_VERSION"))));
    let (code, licences) = said(&["--licenses"]);
    assert!(code == Some(0) && licences.contains("LLVM and MLIR") && licences.contains("melior"), "{licences}");
    assert_eq!(said(&["--nonsense"]).0, Some(2));
    // An input that ends at once is no fault.
    assert_eq!(said(&[]), (Some(0), String::new()));
}

#[test]
fn it_lowers_kernels() {
    let mlir = "module { gpu.module @m { llvm.func @k(%a: !llvm.ptr<1>) attributes {gpu.kernel, nvvm.kernel} { \
        %t = nvvm.read.ptx.sreg.tid.x : i32 %p = llvm.getelementptr %a[%t] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32 \
        llvm.store %t, %p : i32, !llvm.ptr<1> llvm.return } } }";
    let mut beside = Worker::new(&Llvm::Child(PROGRAM.into(), vec![]));
    let mut inside = Worker::new(&Llvm::Here);
    for (stage, part) in [(Stage::Ptx, ".entry k"), (Stage::LlvmIr, "define"), (Stage::Lowered, "llvm.func")] {
        let lower = |worker: &mut Worker| worker.lower(mlir, "sm_90a", "+ptx80", stage).expect("lowered");
        let text = lower(&mut beside);
        assert!(text.contains(part), "{text}");
        assert_eq!(text, lower(&mut inside));
    }
    let refused = beside.lower("nonsense", "sm_90a", "+ptx80", Stage::Ptx);
    assert!(matches!(refused, Err(WorkerError::Refused(_))), "{refused:?}");
}
