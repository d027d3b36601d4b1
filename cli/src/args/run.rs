//! Arguments of `llmcc run`.

use super::engine::EngineArgs;
use super::values::{parse_penalty, parse_scale, parse_share};
use clap::{ArgGroup, Args as ClapArgs};
use std::path::PathBuf;

/// `llmcc run`
#[derive(Debug, ClapArgs)]
#[command(group(ArgGroup::new("input").required(true).args(["prompt", "chat", "ids", "rank"])))]
pub struct RunArgs {
    /// Artifact
    pub artifact: PathBuf,
    /// Text to continue
    #[arg(short, long)]
    pub prompt: Option<String>,
    /// Talk: reads lines from the terminal, and answers each; needs a chat template in the checkpoint. Ctrl-C stops an
    /// answer, Ctrl-D ends
    #[arg(long)]
    pub chat: bool,
    /// Token ids to continue, comma separated; prints ids
    #[arg(long, value_delimiter = ',')]
    pub ids: Option<Vec<i32>>,
    /// Print the embedding of the text or ids, or their scores of classes, as a JSON list
    #[arg(long, conflicts_with_all = ["chat", "stats"])]
    pub embed: bool,
    /// The prompt of an embedder to put before the text, by its name (`inspect` lists them) [default: the model's]
    #[arg(long, value_name = "NAME", requires = "embed", requires = "prompt")]
    pub prompt_name: Option<String>,
    /// Print the classes of the text or ids by their names, the best first, with their scores before any softmax, as a
    /// JSON list
    #[arg(long, conflicts_with_all = ["chat", "stats", "embed", "rank"])]
    pub classify: bool,
    /// Compare a query with each --document by a model that scores pairs of texts (a reranker):
    /// prints a JSON list of the documents with their scores, before any sigmoid or softmax; if
    /// there is one score each, the best document first
    #[arg(long, value_name = "QUERY", requires = "document", conflicts_with_all = ["embed", "stats"])]
    pub rank: Option<String>,
    /// A text for --rank (may be repeated)
    #[arg(long, value_name = "TEXT", requires = "rank", conflicts_with_all = ["prompt", "chat", "ids"])]
    pub document: Vec<String>,
    /// Cut pairs of --rank that are too long for the model, the longer text first
    #[arg(long, requires = "rank")]
    pub truncate: bool,
    /// Load an adapter of PEFT from this folder; the artifact needs room for it (`compile --lora-slots`)
    #[arg(long, value_name = "FOLDER", conflicts_with = "embed")]
    pub adapter: Option<PathBuf>,
    /// Draft heads of the model (`compile --draft-head`, of several =0, =1... in order): the same text in fewer steps
    /// of the model, which was compiled with --hidden-states. May be given several times
    #[arg(long, value_name = "HEAD", conflicts_with_all = ["embed", "rank"])]
    pub draft: Vec<PathBuf>,
    /// Tokens that the heads guess for each step; past the last head it goes on from its own guesses [default: one
    /// for each head]
    #[arg(long, value_name = "N", requires = "draft", value_parser = clap::value_parser!(u32).range(1..))]
    pub guesses: Option<u32>,
    /// System message for --chat
    #[arg(long)]
    pub system: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub engine: EngineArgs,
    /// Print speed when done, and how many guesses of --draft were right
    #[arg(long)]
    pub stats: bool,
}

/// How the next token is chosen. Options that are not given come from the checkpoint's
/// generation_config.json.
#[derive(Debug, Default, ClapArgs)]
pub struct SamplingArgs {
    /// Tokens to generate at most [default: the model's, else 256; with --chat no limit]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: Option<u32>,
    /// Always the most likely token, and nothing of the model's own settings (generation_config.json)
    #[arg(long, conflicts_with = "temperature")]
    pub greedy: bool,
    /// 0 = always the most likely token [default: the model's, else 0]
    #[arg(long, value_parser = parse_scale)]
    pub temperature: Option<f32>,
    /// Keep the k most likely tokens; 0 = all [default: the model's, else 0]
    #[arg(long, value_name = "K")]
    pub top_k: Option<u32>,
    /// Keep the most likely tokens whose probabilities add up to this: at least one [default: the model's, else 1]
    #[arg(long, value_parser = parse_share)]
    pub top_p: Option<f32>,
    /// Drop tokens less likely than this fraction of the most likely one [default: the model's, else 0]
    #[arg(long, value_parser = parse_share)]
    pub min_p: Option<f32>,
    /// > 1 makes tokens that already occurred less likely [default: the model's, else 1]
    #[arg(long, value_name = "PENALTY", value_parser = parse_penalty)]
    pub repetition_penalty: Option<f32>,
    /// Seed: the same seed gives the same text
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Stop before this text (may be repeated)
    #[arg(long)]
    pub stop: Vec<String>,
    /// Go on after the end-of-text token
    #[arg(long)]
    pub ignore_eos: bool,
}
