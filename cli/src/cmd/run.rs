//! `llmcc run`

use crate::Error;
use crate::args::{RunArgs, SamplingArgs};
use crate::loaded::{GenOptions, Generation, Model, Piece};
use crate::speculate::{Drafted, Drafting};
use llmcc_abi::capi::llmcc_gen_stats_t;
use serde_json::{Value, json};
use std::io::{BufRead, Write};

/// Generates from a prompt, from token ids, or in a conversation; or embeds a text, or ranks
/// several.
///
/// # Errors
/// Not an artifact; no tokenizer where text is needed.
pub fn run(args: &RunArgs) -> Result<(), Error> {
    if args.system.is_some() && !args.chat {
        return Err(Error::Usage(
            "--system goes with --chat: with -p or --ids the text is continued as it is, without roles".into(),
        ));
    }
    let model = Model::open(&args.artifact, args.engine.options())?;
    let mut options = gen_options(&args.sampling);
    if let Some(folder) = &args.adapter {
        options.adapter = model.adapter_load(folder)?;
    }
    if args.embed {
        return embed(&model, args);
    }
    if let Some(query) = &args.rank {
        return rank(&model, query, args);
    }
    let heads: Vec<Model> =
        args.draft.iter().map(|head| Model::open(head, args.engine.options())).collect::<Result<_, _>>()?;
    let mut source = match &heads[..] {
        [] => Speaker { model: &model, seq: args.chat.then(|| model.seq_new()).transpose()?, drafting: None },
        heads => {
            let guesses = args.guesses.map(|n| n as usize);
            Speaker { model: &model, seq: None, drafting: Some(Drafting::new(&model, heads, guesses)?) }
        }
    };
    if args.chat {
        return chat(&mut source, args, &options);
    }
    if let Some(ids) = &args.ids {
        options.no_text = true;
        return from_ids(&mut source, ids, args, &options);
    }
    let prompt = args.prompt.as_deref().unwrap_or_default();
    let ids = model.tokenize(prompt, true)?;
    // Nothing is printed before all that can be refused has been accepted.
    let mut generation = source.generate(&ids, &options)?;
    super::print(prompt)?;
    stream(&mut generation)?;
    super::print("\n")?;
    stats(&generation, args)
}

/// What generations are made with.
struct Speaker<'a> {
    model: &'a Model,
    /// Sequence of a conversation.
    seq: Option<i32>,
    drafting: Option<Drafting<'a>>,
}

impl<'a> Speaker<'a> {
    fn generate(&mut self, prompt: &[i32], options: &GenOptions) -> Result<Made<'_, 'a>, Error> {
        Ok(match &mut self.drafting {
            Some(drafting) => Made::Drafted(drafting.generate(prompt, options)?),
            None => Made::Plain(self.model.generate(self.seq, prompt, options)?),
        })
    }
}

/// A generation, with draft heads or without.
enum Made<'d, 'a> {
    Plain(Generation<'a>),
    Drafted(Drafted<'d, 'a>),
}

impl Iterator for Made<'_, '_> {
    type Item = Result<Piece, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Made::Plain(generation) => generation.next(),
            Made::Drafted(drafted) => drafted.next(),
        }
    }
}

impl Made<'_, '_> {
    fn stats(&self) -> Result<llmcc_gen_stats_t, Error> {
        match self {
            Made::Plain(generation) => generation.stats(),
            Made::Drafted(drafted) => Ok(drafted.stats()),
        }
    }
}

/// Prints the row of a text, or of token ids, as a JSON list of numbers.
fn embed(model: &Model, args: &RunArgs) -> Result<(), Error> {
    let ids = match &args.ids {
        Some(ids) => ids.clone(),
        None => model.tokenize(args.prompt.as_deref().unwrap_or_default(), true)?,
    };
    let row = model.embed(&[ids], None)?;
    super::print(&format!("{}\n", json!(row)))
}

/// Prints the documents with their scores as a JSON list; if there is one score each, the best
/// first, equal ones in their order.
fn rank(model: &Model, query: &str, args: &RunArgs) -> Result<(), Error> {
    let pairs: Vec<_> = args.document.iter().map(|d| (query, d.as_str())).collect();
    let scores = model.score_pairs(&pairs, args.truncate)?;
    let rows: Vec<&[f32]> = scores.chunks_exact(model.info().columns).collect();
    let mut order: Vec<usize> = (0..rows.len()).collect();
    if model.info().columns == 1 {
        order.sort_by(|a, b| rows[*b][0].total_cmp(&rows[*a][0]));
    }
    let ranked: Vec<Value> =
        order.iter().map(|&i| json!({ "document": i, "scores": rows[i], "text": args.document[i] })).collect();
    super::print(&format!("{}\n", json!(ranked)))
}

fn gen_options(s: &SamplingArgs) -> GenOptions {
    GenOptions {
        max_tokens: s.max_tokens,
        temperature: s.temperature,
        top_k: s.top_k,
        top_p: s.top_p,
        min_p: s.min_p,
        repetition_penalty: s.repetition_penalty,
        seed: s.seed,
        stop: s.stop.clone(),
        ignore_eos: s.ignore_eos,
        no_text: false,
        adapter: 0,
    }
}

/// Prints pieces as they come; returns the whole text.
fn stream(generation: &mut Made<'_, '_>) -> Result<String, Error> {
    let mut text = String::new();
    for piece in generation {
        let piece = piece?;
        super::print(&piece.text)?;
        text += &piece.text;
    }
    Ok(text)
}

fn from_ids(source: &mut Speaker, ids: &[i32], args: &RunArgs, options: &GenOptions) -> Result<(), Error> {
    let mut generation = source.generate(ids, options)?;
    let mut comma = "";
    for piece in &mut generation {
        let piece = piece?;
        if piece.token >= 0 {
            super::print(&format!("{comma}{}", piece.token))?;
            comma = ",";
        }
    }
    super::print("\n")?;
    stats(&generation, args)
}

fn chat(source: &mut Speaker, args: &RunArgs, options: &GenOptions) -> Result<(), Error> {
    let model = source.model;
    if !model.info().chat_template {
        return Err(Error::Artifact {
            path: args.artifact.clone(),
            message: "it has no chat template; use -p for plain text".into(),
        });
    }
    let mut messages: Vec<Value> = args.system.iter().map(|s| json!({ "role": "system", "content": s })).collect();
    if let Some(seq) = source.seq {
        model.seq_set_adapter(seq, options.adapter)?;
    }
    let stdin = std::io::stdin();
    loop {
        eprint!("> ");
        let _ = std::io::stderr().flush();
        let mut line = String::new();
        let n = stdin.lock().read_line(&mut line).map_err(|e| Error::io("read", "standard input", e))?;
        if n == 0 {
            return Ok(());
        }
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        messages.push(json!({ "role": "user", "content": line }));
        let prompt = model.apply_chat_template(&Value::Array(messages.clone()).to_string())?;
        let ids = model.tokenize(&prompt, false)?;
        let mut generation = source.generate(&ids, options)?;
        let answer = stream(&mut generation)?;
        super::print("\n")?;
        stats(&generation, args)?;
        messages.push(json!({ "role": "assistant", "content": answer }));
    }
}

fn stats(generation: &Made<'_, '_>, args: &RunArgs) -> Result<(), Error> {
    if !args.stats {
        return Ok(());
    }
    let s = generation.stats()?;
    let rate = |n: u64, ns: u64| if ns == 0 { 0.0 } else { n as f64 / (ns as f64 * 1e-9) };
    eprintln!(
        "{} prompt tokens ({} from the cache) in {:.1} ms; {} tokens generated, {:.1} tokens/s",
        s.prompt_tokens,
        s.reused_tokens,
        s.prefill_ns as f64 * 1e-6,
        s.generated_tokens,
        rate(s.generated_tokens.saturating_sub(1), s.decode_ns)
    );
    if let Made::Drafted(drafted) = generation {
        let n = drafted.counts();
        let share = if n.drafted == 0 { 0.0 } else { 100.0 * n.accepted as f64 / n.drafted as f64 };
        eprintln!(
            "{} of {} guesses were right ({share:.1} %), in {} steps after the prompt",
            n.accepted, n.drafted, n.rounds
        );
    }
    Ok(())
}
