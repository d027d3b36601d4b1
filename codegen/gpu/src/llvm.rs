//! From MLIR text to PTX: MLIR's conversions (melior), LLVM's optimizer and NVPTX backend
//! (inkwell).
//!
//! A fatal error inside LLVM ends the process it happens in; [`crate::worker`] therefore runs this
//! in child processes.

pub use crate::stage::Stage;
use inkwell::OptimizationLevel;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::context::Context as LlvmContext;
use inkwell::module::Module as LlvmModule;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{CodeModel, FileType, InitializationConfig, RelocMode, Target, TargetMachine, TargetTriple};
use inkwell::values::CallSiteValue;
use melior::diagnostic::DiagnosticSeverity;
use melior::dialect::DialectRegistry;
use melior::ir::operation::OperationLike;
use melior::ir::{BlockLike, Module};
use melior::pass::PassManager;
use melior::utility::{
    parse_pass_pipeline, register_all_dialects, register_all_llvm_translations, register_all_passes,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Once;

/// From `nvvm`, `llvm`, `arith`, `vector` and `scf` to the `llvm` dialect.
const PIPELINE: &str = "builtin.module(gpu.module(\
    convert-scf-to-cf,convert-to-llvm,convert-nvvm-to-llvm,reconcile-unrealized-casts,canonicalize,cse))";

/// An MLIR context, to be used for many kernels.
pub struct Compiler {
    context: melior::Context,
    /// Diagnostics of MLIR.
    diagnostics: Rc<RefCell<Vec<String>>>,
}

impl Default for Compiler {
    fn default() -> Compiler {
        Compiler::new()
    }
}

impl Compiler {
    /// A context that knows all dialects.
    pub fn new() -> Compiler {
        static PASSES: Once = Once::new();
        PASSES.call_once(|| {
            register_all_passes();
            Target::initialize_nvptx(&InitializationConfig::default());
        });
        let registry = DialectRegistry::new();
        register_all_dialects(&registry);
        // Kernels are compiled in parallel, so a kernel alone is not.
        let context = melior::Context::new_with_threading(false);
        context.append_dialect_registry(&registry);
        context.get_or_load_dialect("gpu");
        register_all_llvm_translations(&context);
        let diagnostics = Rc::new(RefCell::new(vec![]));
        let sink = Rc::clone(&diagnostics);
        context.attach_diagnostic_handler(move |d| {
            if matches!(d.severity(), DiagnosticSeverity::Error | DiagnosticSeverity::Warning) {
                let notes = (0..d.note_count()).filter_map(|i| d.note(i).ok()).map(|n| format!("\n  {n}"));
                sink.borrow_mut().push(format!("{}: {d}{}", d.location(), notes.collect::<String>()));
            }
            true
        });
        Compiler { context, diagnostics }
    }

    /// Lowers one module, which contains one `gpu.module`, for processor `chip` (`sm_90a`) with
    /// LLVM's `features` (`+ptx80`).
    ///
    /// # Errors
    /// Errors of MLIR or LLVM.
    pub fn lower(&self, mlir: &str, chip: &str, features: &str, stage: Stage) -> Result<String, String> {
        self.diagnostics.borrow_mut().clear();
        let mut module = Module::parse(&self.context, mlir).ok_or_else(|| self.failed("MLIR does not parse"))?;
        let passes = PassManager::new(&self.context);
        parse_pass_pipeline(passes.as_operation_pass_manager(), PIPELINE)
            .map_err(|e| format!("the pass pipeline: {e}"))?;
        passes.run(&mut module).map_err(|_| self.failed("MLIR passes failed"))?;
        if stage == Stage::Lowered {
            return Ok(module.as_operation().to_string());
        }
        let context = LlvmContext::create();
        let llvm = self.translate(&module, &context)?;
        mark_convergent(&llvm, &context);
        let machine = machine(chip, features)?;
        optimize(&llvm, &machine)?;
        match stage {
            Stage::Ptx => ptx(&llvm, &machine),
            _ => Ok(llvm.print_to_string().to_string()),
        }
    }

    fn failed(&self, what: &str) -> String {
        let said = self.diagnostics.borrow();
        format!("{what}{}{}", if said.is_empty() { "" } else { ": " }, said.join("\n"))
    }

    /// The body of the `gpu.module` as an LLVM module.
    fn translate<'l>(&self, module: &Module, context: &'l LlvmContext) -> Result<LlvmModule<'l>, String> {
        let mut op = module.body().first_operation();
        while let Some(o) = op {
            if o.name().as_string_ref().as_str() == Ok("gpu.module") {
                // SAFETY: the operation is alive; the module that comes back belongs to `context`,
                // whose type differs between the two bindings only by name.
                let raw = unsafe { mlir_sys::mlirTranslateModuleToLLVMIR(o.to_raw(), context.raw().cast()) };
                if raw.is_null() {
                    return Err(self.failed("translation to LLVM IR failed"));
                }
                // SAFETY: not null, and nobody else owns it.
                return Ok(unsafe { LlvmModule::new(raw.cast()) });
            }
            op = o.next_in_block();
        }
        Err("there is no gpu.module".into())
    }
}

/// [`Compiler::lower`] with a context of its own.
///
/// # Errors
/// Errors of MLIR or LLVM.
pub fn lower(mlir: &str, chip: &str, features: &str, stage: Stage) -> Result<String, String> {
    Compiler::new().lower(mlir, chip, features, stage)
}

/// MLIR does not mark inline assembly that threads of a warp execute together; without the mark
/// LLVM may move it into a branch.
fn mark_convergent<'l>(module: &LlvmModule<'l>, context: &'l LlvmContext) {
    let kind = Attribute::get_named_enum_kind_id("convergent");
    let instructions = module.get_functions().flat_map(|f| f.get_basic_block_iter()).flat_map(|b| b.get_instructions());
    for instruction in instructions {
        let Ok(call) = CallSiteValue::try_from(instruction) else { continue };
        if call.get_called_fn_value().is_some() {
            continue;
        }
        let text = instruction.to_string();
        if [".sync", "wgmma", "bar.", "barrier", "mbarrier", "fence", "setmaxnreg", "elect"]
            .iter()
            .any(|w| text.contains(w))
        {
            call.add_attribute(AttributeLoc::Function, context.create_enum_attribute(kind, 0));
        }
    }
}

fn machine(chip: &str, features: &str) -> Result<TargetMachine, String> {
    let triple = TargetTriple::create("nvptx64-nvidia-cuda");
    let target = Target::from_triple(&triple).map_err(|e| e.to_string())?;
    target
        .create_target_machine(
            &triple,
            chip,
            features,
            OptimizationLevel::Aggressive,
            RelocMode::PIC,
            CodeModel::Default,
        )
        .ok_or_else(|| format!("LLVM has no processor {chip} with {features}"))
}

fn optimize(module: &LlvmModule<'_>, machine: &TargetMachine) -> Result<(), String> {
    module.set_triple(&machine.get_triple());
    module.set_data_layout(&machine.get_target_data().get_data_layout());
    let options = PassBuilderOptions::create();
    options.set_loop_unrolling(true);
    options.set_loop_slp_vectorization(true);
    module.run_passes("default<O3>", machine, options).map_err(|e| format!("LLVM's optimizer: {e}"))
}

fn ptx(module: &LlvmModule<'_>, machine: &TargetMachine) -> Result<String, String> {
    let buffer =
        machine.write_to_memory_buffer(module, FileType::Assembly).map_err(|e| format!("LLVM's PTX backend: {e}"))?;
    let bytes = buffer.as_slice();
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    String::from_utf8(bytes.to_vec()).map_err(|e| format!("LLVM's PTX backend: {e}"))
}
