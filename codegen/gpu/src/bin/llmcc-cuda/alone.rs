//! Symbols with which LLVM from its archives links without code that this program never runs.
//!
//! A part of MLIR that writes objects for processors initialises every target that LLVM was built
//! with, and so links some 80 MB of them. Here only NVPTX is a target; the functions that initialise
//! the others do nothing.

use std::arch::global_asm;
use std::hash::{BuildHasher, RandomState};

macro_rules! absent {
    ($($target:literal)*) => {
        global_asm!(
            ".text",
            $(concat!(
                ".globl LLVMInitialize", $target, "Target\nLLVMInitialize", $target, "Target:\n",
                ".globl LLVMInitialize", $target, "TargetInfo\nLLVMInitialize", $target, "TargetInfo:\n",
                ".globl LLVMInitialize", $target, "TargetMC\nLLVMInitialize", $target, "TargetMC:\n",
                ".globl LLVMInitialize", $target, "AsmPrinter\nLLVMInitialize", $target, "AsmPrinter:\n",
                ".globl LLVMInitialize", $target, "AsmParser\nLLVMInitialize", $target, "AsmParser:\n",
                ".globl LLVMInitialize", $target, "Disassembler\nLLVMInitialize", $target, "Disassembler:\n",
            ),)*
            "ret"
        );
    };
}

absent! {
    "AArch64" "AMDGPU" "ARM" "AVR" "BPF" "Hexagon" "Lanai" "LoongArch" "M68k" "MSP430" "Mips" "PowerPC" "RISCV" "SPIRV"
    "Sparc" "SystemZ" "VE" "WebAssembly" "X86" "XCore" "Xtensa"
}

// The interpreter of LLVM IR, which would need libffi.
global_asm!(".globl LLVMLinkInInterpreter\nLLVMLinkInInterpreter: ret");

/// Random bits, for names of temporary files. That of glibc came with version 2.36.
#[unsafe(no_mangle)]
extern "C" fn arc4random() -> u32 {
    RandomState::new().hash_one(0u8) as u32
}
