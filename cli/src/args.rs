//! The command line as types.

mod bench;
mod bisect;
mod calib;
mod chat;
mod compress;
mod engine;
mod eval;
mod form;
mod frontier;
mod health;
mod lir;
mod prune;
mod pull;
mod retarget;
mod route;
mod run;
mod serve;
mod simulate;
mod talk;
mod tap;
mod tokenize;
mod types;
mod values;
mod workload;

use crate::bounds::Bound;
use crate::version;
pub use bench::BenchArgs;
pub use bisect::BisectArgs;
pub use calib::{CalibArgs, CalibTexts};
pub use chat::ChatArgs;
use clap::{ArgGroup, Args as ClapArgs, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
pub use compress::CompressArgs;
pub use engine::EngineArgs;
pub use eval::{CutArgs, EvalCommand, KlArgs, LongArgs, PplArgs};
pub use frontier::FrontierArgs;
pub use health::HealthArgs;
pub use lir::{CheckArgs, OptArgs, OptStage};
use llmcc_frontends::{Adapter, DraftHeads};
use llmcc_ir::gpu::wish::Wish;
use llmcc_ir::quant::Format;
use llmcc_passes::module::policy;
pub use prune::PruneArgs;
pub use pull::PullArgs;
pub use retarget::{Kept, RetargetArgs};
pub use route::RouteArgs;
pub use run::{RunArgs, SamplingArgs, TextArgs};
pub use serve::{LogAs, ServeArgs};
pub use simulate::SimulateArgs;
use std::path::PathBuf;
pub use talk::{DraftArgs, TalkArgs};
pub use tap::TapArgs;
pub use tokenize::TokenizeArgs;
pub use types::{ActType, KvType};
use values::{
    draft_heads, parse_adapter, parse_budget, parse_format, parse_group, parse_rank, parse_root, parse_slots,
};
pub use values::{parse_soname, parse_wish};
pub use workload::WorkloadArgs;

/// Ahead-of-time compiler for LLM inference: a checkpoint in, one shared object out.
#[derive(Debug, Parser)]
#[command(name = "llmcc", version, long_version = version::long(), max_term_width = 80)]
pub struct Args {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

impl Args {
    /// Reads the command line; ends the process with a message where it makes no sense.
    pub fn read() -> Args {
        // `-n -1` is a value to be refused as such, not an option that is not known.
        let matches = negative_numbers_are_values(Args::command()).try_get_matches().unwrap_or_else(|e| shown(&e));
        Args::from_arg_matches(&matches).unwrap_or_else(|e| e.exit())
    }
}

/// Shows help, a version or the fault of the command line, and ends.
fn shown(e: &clap::Error) -> ! {
    if e.use_stderr() && crate::json::wanted() {
        let _ = crate::json::print(&crate::json::usage(&e.render().to_string()));
        std::process::exit(e.exit_code());
    }
    let code = match e.print() {
        Err(cause) if !e.use_stderr() && cause.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("error: cannot write to standard output: {cause}");
            1
        }
        _ => e.exit_code(),
    };
    std::process::exit(code)
}

fn negative_numbers_are_values(command: clap::Command) -> clap::Command {
    command
        .mut_args(|a| if a.get_action().takes_values() { a.allow_negative_numbers(true) } else { a })
        .mut_subcommands(negative_numbers_are_values)
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compile a checkpoint to one shared object
    Compile(Box<CompileArgs>),
    /// Generate text (or token ids) from an artifact
    Run(Box<RunArgs>),
    /// Talk with a model in the terminal
    Chat(Box<ChatArgs>),
    /// Fetch a model from the Hugging Face hub, into the hub's own cache
    Pull(PullArgs),
    /// Serve an artifact over HTTP, with OpenAI's interface
    Serve(ServeArgs),
    /// Pass requests on to several servers of an artifact: streams outlive them
    Route(RouteArgs),
    /// Ask a server whether it takes requests: for health checks
    Health(HealthArgs),
    /// Show the contents of an artifact
    Inspect(InspectArgs),
    /// Make an artifact for other machines of an artifact, without the checkpoint
    Retarget(RetargetArgs),
    /// Sign an artifact: write ARTIFACT.sig
    Sign(SignArgs),
    /// Show how two artifacts differ: formats by tensor, decisions, options, sources, bytes
    Diff(DiffArgs),
    /// Write a page about an artifact: formats, errors, certificate, decisions, roofline of its kernels
    Explain(ExplainArgs),
    /// Show the tokens of a text, or the text of tokens
    Tokenize(TokenizeArgs),
    /// Measure the inputs of a model's products on a text: moments, for calibration
    Tap(Box<TapArgs>),
    /// Measure speed: time to first token, prefill and decode rates, share of the roofline
    Bench(BenchArgs),
    /// Predict how an artifact serves a workload, here or on another machine: first tokens, next ones, goodput, memory
    Simulate(SimulateArgs),
    /// Measure quality
    #[command(subcommand)]
    Eval(EvalCommand),
    /// Measure divergences by size: mixtures of formats at several numbers of bytes, beside uniform formats
    Frontier(Box<FrontierArgs>),
    /// List the targets
    Targets(TargetsArgs),
    /// Print the licences of the software in this program
    Licenses,
    /// List the architectures of models, and the reference each was checked against
    Models(ModelsArgs),
    /// Read .lir text of any level of the IR, verify it, and show every finding in its place
    Check(CheckArgs),
    /// Run rewrites and passes on .lir text of the graph level, and print the result
    Opt(OptArgs),
    /// Find the rewrite, fusion or approximation behind a difference between a model's program and its graph
    Bisect(BisectArgs),
    /// Lower single GPU kernels, given as text, to code and a description of how to launch them
    Lower(LowerArgs),
    /// Check an artifact: the hashes of all its bytes, and that it computes the same as when it was
    /// compiled
    Verify(VerifyArgs),
    /// Run an artifact's golden steps and print the results, as JSON: `compile` runs fresh
    /// artifacts this way
    #[command(hide = true)]
    Golden(GoldenArgs),
    /// Lowers GPU kernels for a compiling llmcc, which is at the other end of its pipes
    #[command(hide = true)]
    LlvmWorker,
}

/// Options that say how weights are stored: at most one is given.
const FORMATS: [&str; 8] = ["w4", "w4a", "w8", "fp8", "stored_as", "dtype", "error_budget", "budget"];

/// `llmcc compile`
#[derive(Debug, ClapArgs)]
#[command(group(ArgGroup::new("format").args(FORMATS)))]
pub struct CompileArgs {
    /// Checkpoint: a folder with config.json and its tensors (safetensors or PyTorch's files), one
    /// file of them, a GGUF file, or a folder with Llama's own consolidated.*.pth and params.json;
    /// or a model of the Hugging Face hub, OWNER/NAME with @REVISION, and for GGUF :FORMAT or /FILE
    /// behind it, which is fetched as `llmcc pull` does
    pub checkpoint: PathBuf,
    /// Merge an adapter of PEFT (LoRA, rsLoRA, DoRA) into the weights, before they are quantized;
    /// with `=0.5`, half as strong. May be given several times
    #[arg(long = "lora", value_name = "FOLDER[=SCALE]", value_parser = parse_adapter)]
    pub lora: Vec<Adapter>,
    /// Keep room for so many adapters of PEFT (LoRA, rsLoRA) that are loaded while the model runs, each
    /// for some of its sequences
    #[arg(long, value_name = "N", value_parser = parse_slots)]
    pub lora_slots: Option<usize>,
    /// The largest rank of these adapters
    #[arg(long, value_name = "R", default_value_t = 16, value_parser = parse_rank, requires = "lora_slots")]
    pub lora_rank: usize,
    /// Number format of the adapters' factors [default: f32 in models whose weights are f32, else
    /// bf16]
    #[arg(long, value_name = "TYPE", requires = "lora_slots")]
    pub lora_dtype: Option<FactorType>,
    /// Modules that they may change, by the ends of their names [default: all matrices of the layers]
    #[arg(long, value_name = "NAME,NAME...", value_delimiter = ',', requires = "lora_slots")]
    pub lora_targets: Vec<String>,
    /// Fetch nothing: take a model of the hub from its cache alone (also: HF_HUB_OFFLINE=1)
    #[arg(long)]
    pub offline: bool,
    /// The checkpoint that CHECKPOINT, a folder with an adapter only, belongs to
    #[arg(long, value_name = "CHECKPOINT")]
    pub base: Option<PathBuf>,
    /// Machine to compile for: `native`, or a name from `llmcc targets`; several, most wanted
    /// first, for a file that runs on the first that there is [default, also without a value:
    /// x86-64-v4,x86-64-v3,x86-64, a file for every x86-64 processor; with --emit: native]
    #[arg(long, num_args = 0..=1)]
    pub target: Option<Option<String>>,
    /// 4-bit weights, symmetric (an embedding table that is not the head as well keeps 8 bits)
    #[arg(long)]
    pub w4: bool,
    /// 4-bit weights, asymmetric (embedding table: as with --w4)
    #[arg(long)]
    pub w4a: bool,
    /// 8-bit weights
    #[arg(long)]
    pub w8: bool,
    /// 8-bit floating-point weights (e4m3), a scale per row of a matrix
    #[arg(long)]
    pub fp8: bool,
    /// Weights of any format of docs/formats.md, by its name there or as GGUF calls it: nf4, w8g128, Q4_K,
    /// mxfp4...
    #[arg(long = "format", value_name = "FORMAT", value_parser = parse_format)]
    pub stored_as: Option<Format>,
    /// Matrices of a quantized checkpoint that keep their own bits, while --w4, --w8, --format and so on quantize
    /// the others anew: names of tensors (`*.experts.*`) or of formats (nvfp4) [without a value: all]
    #[arg(long, value_name = "PATTERN,PATTERN...", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "*", value_delimiter = ',', requires = "format")]
    #[arg(conflicts_with_all = ["error_budget", "budget", "dtype"])]
    pub keep_quantized: Option<Vec<String>>,
    /// Unquantized weights of this type [default: the checkpoint's]
    #[arg(long, value_enum)]
    pub dtype: Option<FloatType>,
    /// The fastest mixture of 4-bit, 8-bit and unquantized weights whose root mean square relative
    /// error is at most this, e.g. 0.05; instead of --w4, --w8...
    #[arg(long, value_name = "ERROR", value_parser = parse_budget)]
    pub error_budget: Option<f64>,
    /// The fastest mixture of these formats that keeps a bound as measured on text (may be given several times):
    /// kl=0.01 (mean divergence from the checkpoint's predictions, in nats), ppl=+1% (growth of perplexity), and by
    /// prediction bytes=700M, memory=1G@8192 (with a sequence of so many tokens), tokens/s=60
    #[arg(long, value_name = "BOUND", value_parser = Bound::parse, conflicts_with = "emit")]
    pub budget: Vec<Bound>,
    /// Text (UTF-8) of the kind that the model is for, to measure on: documents with lines `<|document|>` between.
    /// Every fifth document is kept aside to certify the result; several files are domains of their own [default: a
    /// built-in text in six languages]
    #[arg(long, value_name = "FILE", requires = "budget")]
    pub budget_text: Vec<PathBuf>,
    /// Columns that share a scale in the weights of --w4, --w4a and --w8
    #[arg(long, default_value_t = 32, value_parser = parse_group, requires = "format")]
    #[arg(conflicts_with_all = ["error_budget", "budget", "fp8", "stored_as", "dtype"])]
    pub group: u16,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub calib: CalibArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub prune: PruneArgs,
    /// Activations entering quantized matrix products, on the targets that multiply such ones
    /// [default: int8 with quantized weights, on GPUs bf16]
    #[arg(long, value_enum)]
    pub act: Option<ActType>,
    /// Longest sequence, in tokens [default: the model's]
    #[arg(long, value_name = "TOKENS")]
    pub max_context: Option<usize>,
    /// Keep a part of each sequence in the cache: sinks:first=4,window=1020 keeps its first 4 tokens and its last 1020
    /// (StreamingLLM), so a text of any length takes the same memory and time for a token, and --max-context may exceed
    /// the model's; heads:mask=FILE,share=0.5,first=64,window=256 does so in half of the KV heads (DuoAttention);
    /// shared:pairs=5:3 lets layer 5 read layer 3's cache (KVSharer). h2o:budget=512,recent=128, tova, scissorhands,
    /// caote, gkv and lazy drop the tokens that matter least to the queries so far; quest:budget=512 keeps all, and
    /// tokens read the pages that matter most. `,layers=0-3+8` names the layers (may be given several times)
    #[arg(long, value_name = "POLICY", value_parser = policy::parse, conflicts_with = "embed")]
    pub kv_policy: Vec<policy::Given>,
    /// Compile a model that writes text for embeddings: rows of its last layer, that of the last
    /// token or pooled as the checkpoint says. Checkpoints of embedders need no option
    #[arg(long)]
    pub embed: bool,
    /// Make embeddings beside text: the artifact gets a second entry over the same weights, which `run --embed`,
    /// `Model.embed` and llmcc_embed use
    #[arg(long, conflicts_with = "embed")]
    pub also_embed: bool,
    /// Compile the part of the model that sees images, too: prompts may then have images (`run --image`)
    #[arg(long, conflicts_with = "embed")]
    pub with_image: bool,
    /// Compile the model's draft heads (the first N of them) beside it, in the same artifact: layers that predict
    /// the token after the next. Generation guesses with them, and gives the same text in fewer steps
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    #[arg(conflicts_with = "embed", value_parser = draft_heads)]
    pub draft_head: Option<DraftHeads>,
    /// Compile a published draft for the model beside it, in the same artifact: of EAGLE-1, -2 or -3, or heads of
    /// Medusa (their folder, or their file of tensors beside config.json). Generation guesses with it, and gives
    /// the same text in fewer steps
    #[arg(long, value_name = "PATH", conflicts_with_all = ["embed", "draft_head"])]
    pub draft: Option<PathBuf>,
    /// Show the inputs of products: the artifact gets an entry over the same weights that `llmcc tap`, `Model.tap` and
    /// llmcc_tap_moments use, for calibration
    #[arg(long)]
    pub tap: bool,
    /// Leave the hidden states of all tokens to the caller, beside logits: the rows that draft heads take
    #[arg(long, conflicts_with = "embed")]
    pub hidden_states: bool,
    /// Type of cached keys and values [default: f32 for f32 models, else f16; with --error-budget:
    /// auto]
    #[arg(long, value_enum)]
    pub kv: Option<KvType>,
    /// Keep the weights in the artifact, or beside it in OUTPUT.weights
    #[arg(long, value_enum, default_value = "embed")]
    pub weights: Place,
    /// Name of the artifact for the system's loader (DT_SONAME), for programs that are linked with it: they
    /// look for a file of this name. `auto`: lib, OUTPUT's name, .so and the version of the C API, such as
    /// libtiny.so.1 for tiny.so [default: none, programs look for the path they were linked with]
    #[arg(long, value_name = "NAME", value_parser = parse_soname, conflicts_with = "emit")]
    pub soname: Option<String>,
    /// Print a stage instead of writing an artifact (to -o FILE, to the terminal, or, of stages
    /// with a text for each kernel, to files in the folder -o FOLDER/)
    #[arg(long, value_enum)]
    pub emit: Option<Stage>,
    /// Print the stage as a graph in DOT, the language of Graphviz: --emit graph, egraph or plan
    #[arg(long, requires = "emit")]
    pub dot: bool,
    /// Say for each kernel which implementation was chosen, the runner-up and the difference in cost
    #[arg(long)]
    pub explain: bool,
    /// Compile although the checkpoint holds tensors that the model does not use; the report lists
    /// them
    #[arg(long)]
    pub ignore_unused: bool,
    /// On GPUs, give a sequence the same bits in any batch and any pieces, as CPUs do: slower
    #[arg(long)]
    pub invariant: bool,
    /// Fail when a kernel takes a generic slow path
    #[arg(long)]
    pub deny_fallback: bool,
    /// Do not run the finished artifact: no golden vectors for `llmcc verify`
    #[arg(long)]
    pub no_golden: bool,
    /// Sign the artifact with a private key of Ed25519 in PEM: OUTPUT.sig, which `verify --key`, `run --key` and
    /// Python's `load(key=)` check
    #[arg(long, value_name = "FILE", conflicts_with = "emit")]
    pub sign: Option<PathBuf>,
    /// No progress bar and no report
    #[arg(long, short)]
    pub quiet: bool,
    /// Print the report as a JSON document on standard output
    #[arg(long, conflicts_with = "emit")]
    pub json: bool,
    /// Output [default: the checkpoint's name with .so, in the current folder]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
}

/// Unquantized weight types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FloatType {
    /// IEEE binary32
    F32,
    /// IEEE binary16
    F16,
    /// bfloat16
    Bf16,
}

/// Types of the numbers of adapters that are loaded while the model runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FactorType {
    /// As they are
    F32,
    /// Rounded to bfloat16: half the bytes of each step
    Bf16,
}

/// Places for weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// In the artifact
    Embed,
    /// In OUTPUT.weights
    External,
    /// Nowhere: no tensor is read, and config.json alone will do; OUTPUT.weights is for someone
    /// else to make, by the table in OUTPUT.json (tools/gpu-check fills large models with random
    /// numbers)
    Absent,
}

/// Stages of the pipeline that can be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    /// The model as lifted from the checkpoint
    Graph,
    /// E-graphs after saturation
    Egraph,
    /// Kernels
    Kernels,
    /// Launch order, buffers, weights
    Plan,
    /// Cranelift IR
    Clif,
    /// Machine code, disassembled
    Asm,
    /// GPU kernels as MLIR
    Mlir,
    /// GPU kernels as LLVM IR, optimized
    Llvm,
    /// GPU kernels as PTX
    Ptx,
    /// GPU kernels as machine code, disassembled (needs ptxas and nvdisasm)
    Sass,
}

impl Stage {
    /// How the files of single kernels end; `None` for stages that are one text.
    pub const fn ending(self) -> Option<&'static str> {
        match self {
            Stage::Graph | Stage::Egraph | Stage::Plan => None,
            Stage::Kernels => Some("lir"),
            Stage::Clif => Some("clif"),
            Stage::Asm => Some("s"),
            Stage::Mlir => Some("mlir"),
            Stage::Llvm => Some("ll"),
            Stage::Ptx => Some("ptx"),
            Stage::Sass => Some("sass"),
        }
    }
}

/// `llmcc inspect`
#[derive(Debug, ClapArgs)]
pub struct InspectArgs {
    /// Artifact, or a checkpoint
    pub artifact: PathBuf,
    /// The manifest as JSON
    #[arg(long)]
    pub json: bool,
    /// Every tensor
    #[arg(long)]
    pub tensors: bool,
    /// The licences of the software in the artifact's runtime, which whoever hands it on has to pass on
    #[arg(long, conflicts_with_all = ["json", "tensors"])]
    pub licenses: bool,
}

/// `llmcc diff`
#[derive(Debug, ClapArgs)]
pub struct DiffArgs {
    /// Artifact
    pub first: PathBuf,
    /// Another one. The exit status is 0 where both have the same bytes, and 1 where they differ
    pub second: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `llmcc lower`
#[derive(Debug, ClapArgs)]
pub struct LowerArgs {
    /// Kernels, as `compile --emit=kernels` prints them
    pub kernels: PathBuf,
    /// GPU to lower for: a name from `llmcc targets`
    #[arg(long, default_value = "sm90")]
    pub target: String,
    /// Schedule of products, where it should be another than the one chosen:
    /// `resident=2,warps=8,stages=4,input=whole,cut=yes` (or `fitting`, `global`; `no`), each of them optional;
    /// an error where a kernel cannot have it
    #[arg(long, value_parser = parse_wish)]
    pub schedule: Option<Wish>,
    /// Leave out kernels that cannot have the schedule, and say which
    #[arg(long, requires = "schedule")]
    pub where_fits: bool,
    /// Folder for kernels.json and the code (machine code with ptxas in PATH, else PTX)
    #[arg(short, long)]
    pub output: PathBuf,
}

/// `llmcc verify`
#[derive(Debug, ClapArgs)]
pub struct VerifyArgs {
    /// Artifact
    pub artifact: PathBuf,
    /// The root that `compile` printed when the artifact was made: anything else is refused, also
    /// an artifact whose hashes are all consistent
    #[arg(long, value_name = "HEX", value_parser = parse_root)]
    pub root: Option<String>,
    /// The artifact must be signed with the private key to this public one, in PEM
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Check hashes (and signature) only: nothing of the artifact is run
    #[arg(long, conflicts_with = "certificate")]
    pub no_run: bool,
    /// Measure again what the certificate of an artifact made with `compile --budget` says, on this text: the same
    /// file as there (or `builtin`), or another one of its kind; with --reference
    #[arg(long, value_name = "TEXT", requires = "reference")]
    pub certificate: Option<PathBuf>,
    /// The checkpoint that the artifact was made from, or an artifact of it, for --certificate
    #[arg(long, value_name = "CHECKPOINT", requires = "certificate")]
    pub reference: Option<PathBuf>,
    /// Threads; 0 = one per core
    #[arg(long, default_value_t = 0)]
    pub threads: u32,
    /// Print the findings as a JSON document
    #[arg(long)]
    pub json: bool,
}

/// `llmcc explain`
#[derive(Debug, ClapArgs)]
pub struct ExplainArgs {
    /// Artifact; nothing of it is run
    pub artifact: PathBuf,
    /// File to write: one page of HTML, which needs no other file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub html: PathBuf,
}

/// `llmcc sign`
#[derive(Debug, ClapArgs)]
pub struct SignArgs {
    /// Artifact
    pub artifact: PathBuf,
    /// Private key of Ed25519 in PEM, such as `openssl genpkey -algorithm ed25519` writes
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
}

/// `llmcc golden`
#[derive(Debug, ClapArgs)]
pub struct GoldenArgs {
    /// Artifact
    pub artifact: PathBuf,
    /// Seed of the tokens
    pub seed: u64,
    /// Threads; 0 = one per core
    pub threads: u32,
    /// Also compute tokens together and one by one
    #[arg(long)]
    pub batching: bool,
}

/// `llmcc targets`
#[derive(Debug, ClapArgs)]
pub struct TargetsArgs {
    /// Print a JSON document
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `models`.
#[derive(Debug, ClapArgs)]
pub struct ModelsArgs {
    /// Only those with this in a name: of the type, the class or in GGUF files
    pub filter: Option<String>,
    /// As a table in Markdown, that of docs/models.md
    #[arg(long, conflicts_with = "filter")]
    pub markdown: bool,
    /// Print a JSON document
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,
}
