//! Modules and kernels, ready to run.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::ast::{Parser, Var};
use crate::build::build;
use crate::error::Error;
use crate::lex::lex;
use crate::machine::{Exec, SHARED_BASE, Slot};

/// An instruction's effect on the flow of control.
pub(crate) enum Step {
    Run(Exec),
    /// To `target`; lanes that go different ways meet again at `join`.
    Jump {
        target: u32,
        join: u32,
    },
    Exit,
}

/// An instruction.
pub(crate) struct Inst {
    /// Predicate register, and whether it is negated.
    pub guard: Option<(Slot, bool)>,
    pub step: Step,
    pub line: u32,
    pub text: String,
    /// Index into `Kernel::classes`.
    pub class: u32,
    /// Registers read and written, for the checks of wgmma.
    pub uses: Box<[Slot]>,
    pub defs: Box<[Slot]>,
    /// wgmma instructions check their registers themselves.
    pub wgmma: bool,
}

/// Special registers whose value is fixed for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Tid(usize),
    Ntid(usize),
    Ctaid(usize),
    Nctaid(usize),
    Lane,
    Warp,
    Warps,
    /// Mask of the lanes that compare so with this one.
    LaneMask(std::cmp::Ordering, bool),
    DynamicShared,
    TotalShared,
    Value(u64),
}

/// A kernel parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Byte offset in the parameter block.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

/// A kernel of a module.
pub struct Kernel {
    pub(crate) name: String,
    pub(crate) code: Vec<Inst>,
    pub(crate) classes: Vec<String>,
    /// Names of the registers, for reports.
    pub(crate) names: Vec<String>,
    pub(crate) constants: Vec<(Slot, u64)>,
    pub(crate) specials: Vec<(Slot, Special)>,
    /// Registers that hold the address of variable `.1` plus `.2`.
    pub(crate) links: Vec<(Slot, usize, i64)>,
    pub(crate) params: Vec<Param>,
    pub(crate) param_bytes: usize,
    pub(crate) static_shared: usize,
    pub(crate) local_bytes: usize,
    pub(crate) max_threads: Option<[u32; 3]>,
    pub(crate) exact_threads: Option<[u32; 3]>,
    /// Smallest access of shared memory, bytes.
    pub(crate) granule: u64,
    /// Smallest access of global memory, bytes.
    pub(crate) global_granule: u64,
    pub(crate) has_wgmma: bool,
}

impl Kernel {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its parameters, in order.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Bytes of the parameter block.
    pub fn param_bytes(&self) -> usize {
        self.param_bytes
    }

    /// Bytes of shared memory that it declares with a size.
    pub fn static_shared(&self) -> usize {
        self.static_shared
    }

    /// Most threads of a block (`.maxntid` or `.reqntid`), if it says so.
    pub fn max_threads(&self) -> Option<u32> {
        self.max_threads.or(self.exact_threads).map(|d| d.iter().fold(1, |n: u32, d| n.saturating_mul(*d)))
    }
}

/// A variable of the module in global memory.
pub(crate) struct Global {
    pub size: usize,
    pub init: Vec<u8>,
    pub constant: bool,
}

/// A parsed module.
pub struct Module {
    pub(crate) id: u64,
    pub(crate) target: String,
    pub(crate) globals: Vec<Global>,
    pub(crate) kernels: Vec<Kernel>,
}

impl Module {
    /// Reads PTX text and decodes every kernel of it.
    ///
    /// # Errors
    /// Text that is not PTX, and instructions, modifiers or operands that the emulator does not
    /// know: the line and the fault.
    pub fn parse(text: &str) -> Result<Module, Error> {
        Self::read(text).map_err(|mut e| {
            e.text = text.lines().nth(e.line as usize - 1).unwrap_or_default().trim().to_owned();
            e
        })
    }

    fn read(text: &str) -> Result<Module, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let unit = Parser::new(text, lex(text)?).unit()?;
        let globals = unit.vars.iter().filter(|v| v.space != ".shared");
        let globals: Vec<&Var<'_>> = globals.collect();
        let kernels = unit.entries.iter().map(|e| build(e, &unit.vars, &globals)).collect::<Result<_, _>>()?;
        let global =
            |v: &&Var<'_>| Global { size: v.size as usize, init: v.init.clone(), constant: v.space == ".const" };
        Ok(Module {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            target: unit.target.to_owned(),
            globals: globals.iter().map(global).collect(),
            kernels,
        })
    }

    /// The `.target` of the text, such as `sm_90a`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// All kernels, in the order of the text.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The kernel of this name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|k| k.name == name)
    }
}

/// Offset of `v` when it is placed after `end` bytes from `SHARED_BASE`.
pub(crate) fn place_shared(end: usize, v: &Var<'_>) -> usize {
    let base = SHARED_BASE as usize;
    (base + end).next_multiple_of(v.align.max(1) as usize) - base
}
