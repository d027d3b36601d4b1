//! Arguments of `llmcc run`.

use super::compress::CompressArgs;
use super::engine::EngineArgs;
use super::form::FormArgs;
use super::talk::{DraftArgs, TalkArgs};
use super::values::{parse_penalty, parse_scale, parse_share, pools};
use clap::{ArgGroup, Args as ClapArgs, Parser};
use llmcc_ir::output::Pool;
use std::path::PathBuf;

/// `llmcc run`
#[derive(Debug, ClapArgs)]
#[command(group(ArgGroup::new("input").args(["prompt", "prompt_file", "ids", "rank"])))]
#[command(group(ArgGroup::new("documents").args(["document", "document_file"]).multiple(true)))]
pub struct RunArgs {
    /// Artifact
    pub artifact: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub text: TextArgs,
    /// Answer by the chat template of the checkpoint: with -p or --prompt-file one message, else line after line
    /// from the terminal, where Ctrl-C stops an answer and Ctrl-D ends
    #[arg(long, conflicts_with_all = ["ids", "rank"])]
    pub chat: bool,
    /// Token ids to continue, comma separated; prints ids
    #[arg(long, value_delimiter = ',')]
    pub ids: Option<Vec<i32>>,
    /// Print what is said in a WAV file, by a model such as Whisper; a sound longer than 30 seconds is cut into clips
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "prompt_file", "chat", "ids", "embed", "rank"])]
    #[arg(conflicts_with = "classify")]
    pub audio: Option<PathBuf>,
    /// Language of --audio, a code such as en [default: the most probable one, for each clip]
    #[arg(long, value_name = "CODE", requires = "audio")]
    pub language: Option<String>,
    /// Write --audio in its language, or in English [default: transcribe]
    #[arg(long, value_name = "transcribe|translate", requires = "audio")]
    pub task: Option<String>,
    /// Print the embedding of the text or ids, or their scores of classes, as a JSON list
    #[arg(long, conflicts_with_all = ["chat", "stats", "adapter", "draft", "guesses"])]
    pub embed: bool,
    /// How the rows of the text's tokens become one [default: as the model says]
    #[arg(long, value_parser = pools(), requires = "embed")]
    pub pooling: Option<Pool>,
    /// The prompt of an embedder to put before the text, by its name (`inspect` lists them) [default: the model's]
    #[arg(long, value_name = "NAME", requires = "embed", conflicts_with = "ids")]
    pub prompt_name: Option<String>,
    /// Print the classes of the text or ids by their names, the best first, with their scores before any softmax, as a
    /// JSON list
    #[arg(long, conflicts_with_all = ["chat", "stats", "embed", "rank"])]
    pub classify: bool,
    /// Compare a query with each --document by a model that scores pairs of texts (a reranker):
    /// prints a JSON list of the documents with their scores, before any sigmoid or softmax; if
    /// there is one score each, the best document first
    #[arg(long, value_name = "QUERY", requires = "documents")]
    #[arg(conflicts_with_all = ["embed", "stats", "draft", "guesses"])]
    pub rank: Option<String>,
    /// A text for --rank (may be repeated)
    #[arg(long, value_name = "TEXT", requires = "rank", conflicts_with_all = ["prompt", "prompt_file", "chat", "ids"])]
    pub document: Vec<String>,
    /// A file with a text for --rank (may be repeated); `-` is standard input. Texts of --document come first
    #[arg(long, value_name = "FILE", requires = "rank", conflicts_with_all = ["prompt", "prompt_file", "chat", "ids"])]
    pub document_file: Vec<PathBuf>,
    /// Cut pairs of --rank that are too long for the model, the longer text first
    #[arg(long, requires = "rank")]
    pub truncate: bool,
    /// Show the model an image: a PNG, JPEG, WebP, GIF or BMP file (may be repeated). Images stand where the prompt has
    /// the model's marker, such as `<image>`, else before the text; the artifact must be compiled with --with-image
    #[arg(long, value_name = "FILE", conflicts_with_all = ["embed", "classify", "rank"])]
    pub image: Vec<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub draft: DraftArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub talk: TalkArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub form: FormArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub compress: CompressArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub engine: EngineArgs,
    /// Print speed when done, how many guesses were right, and how much of a compressed prompt was kept
    #[arg(long)]
    pub stats: bool,
    /// Print a JSON document, when done, in place of text; of a conversation one for each answer, on a line
    #[arg(long)]
    pub json: bool,
}

/// A text that the user gives.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct TextArgs {
    /// Text; without one, that of --prompt-file, or of standard input where that is a pipe or file
    #[arg(short, long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// File with the text (UTF-8); `-` is standard input. The end of its last line is no part of it
    #[arg(short = 'f', long, value_name = "FILE", conflicts_with = "prompt")]
    pub prompt_file: Option<PathBuf>,
}

/// How the next token is chosen. Options that are not given come from the checkpoint's
/// generation_config.json.
#[derive(Clone, Debug, Default, ClapArgs)]
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

/// A single option of these.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct One {
    #[command(flatten)]
    sampling: SamplingArgs,
}

impl SamplingArgs {
    /// Names of the options, as [`SamplingArgs::set`] takes them.
    pub const NAMES: [&str; 10] = [
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "repetition_penalty",
        "seed",
        "max_tokens",
        "stop",
        "greedy",
        "ignore_eos",
    ];

    /// Sets one option by its name, to a value as on the command line; flags are `on` or `off`.
    ///
    /// # Errors
    /// There is no such option; it cannot have this value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let name = name.trim_start_matches("--").replace('-', "_");
        if !SamplingArgs::NAMES.contains(&name.as_str()) {
            return Err(format!("`{name}` is no setting; settings are {}", SamplingArgs::NAMES.join(", ")));
        }
        let flag = match value {
            _ if name != "greedy" && name != "ignore_eos" => None,
            "on" | "true" | "1" => Some(true),
            "off" | "false" | "0" => Some(false),
            _ => return Err(format!("`{name}` is on or off, not `{value}`")),
        };
        if let Some(on) = flag {
            *(if name == "greedy" { &mut self.greedy } else { &mut self.ignore_eos }) = on;
            return Ok(());
        }
        let option = format!("--{}={value}", name.replace('_', "-"));
        let new = One::try_parse_from([option]).map_err(|e| {
            let text = e.to_string();
            text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
        })?;
        let new = new.sampling;
        match name.as_str() {
            "temperature" => (self.temperature, self.greedy) = (new.temperature, false),
            "top_k" => self.top_k = new.top_k,
            "top_p" => self.top_p = new.top_p,
            "min_p" => self.min_p = new.min_p,
            "repetition_penalty" => self.repetition_penalty = new.repetition_penalty,
            "seed" => self.seed = new.seed,
            "max_tokens" => self.max_tokens = new.max_tokens,
            _ => self.stop = new.stop,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn settings_are_read_as_options_are() {
        let mut s = SamplingArgs { greedy: true, seed: 5, ..SamplingArgs::default() };
        for (name, value) in [
            ("temperature", "0.7"),
            ("--top-k", "40"),
            ("top_p", "0.9"),
            ("min_p", "0.1"),
            ("repetition_penalty", "1.1"),
            ("max_tokens", "9"),
            ("stop", "\n\n"),
            ("ignore_eos", "on"),
        ] {
            s.set(name, value).unwrap();
        }
        assert_eq!((s.temperature, s.top_k, s.top_p, s.min_p), (Some(0.7), Some(40), Some(0.9), Some(0.1)));
        assert_eq!((s.repetition_penalty, s.max_tokens, s.seed), (Some(1.1), Some(9), 5));
        assert_eq!((s.stop.clone(), s.ignore_eos, s.greedy), (vec!["\n\n".into()], true, false));
        s.set("seed", "7").unwrap();
        s.set("greedy", "on").unwrap();
        assert!(s.seed == 7 && s.greedy);
        for (name, value, says) in [
            ("temperature", "-1", "0 or a positive number"),
            ("temperature", "", "value"),
            ("top_p", "2", "from 0 to 1"),
            ("max_tokens", "0", "0"),
            ("temprature", "1", "settings are temperature"),
            ("greedy", "maybe", "on or off"),
        ] {
            let found = s.set(name, value).unwrap_err();
            assert!(found.contains(says), "{name} {value}: {found}");
        }
        // Every option has a name here.
        let command = One::command();
        let all: Vec<String> =
            command.get_arguments().filter_map(|a| a.get_long()).map(|a| a.replace('-', "_")).collect();
        assert!(
            all.len() == SamplingArgs::NAMES.len() && all.iter().all(|n| SamplingArgs::NAMES.contains(&n.as_str()))
        );
    }
}
