//! `llmcc run`

mod chat;
mod lines;
mod rows;
mod sampling;

use crate::Error;
use crate::args::RunArgs;
use crate::loaded::{GenOptions, Generation, Model, Piece};
use crate::manifest::Manifest;
use crate::speculate::{Drafted, Drafting};
use llmcc_abi::capi::llmcc_gen_stats_t;

/// Generates from a prompt, from token ids, or in a conversation; or embeds a text, or ranks
/// several.
///
/// # Errors
/// Not an artifact; no tokenizer where text is needed.
pub fn run(args: &RunArgs) -> Result<(), Error> {
    if args.system.is_some() && !args.chat {
        return Err(Error::Usage(
            "--system needs --chat: with -p or --ids the text is continued as it is, without roles".into(),
        ));
    }
    let model = Model::open(&args.artifact, args.engine.options())?;
    let manifest = Manifest::of_model(&model)?;
    let mut options = sampling::options(&args.sampling, &manifest, args.chat);
    if let Some(folder) = &args.adapter {
        options.adapter = model.adapter_load(folder)?;
    }
    if args.embed {
        return rows::embed(&model, &manifest, args);
    }
    if args.classify {
        return rows::classify(&model, &manifest, args);
    }
    if let Some(query) = &args.rank {
        return rows::rank(&model, &manifest, query, args);
    }
    let heads: Vec<Model> =
        args.draft.iter().map(|head| Model::open(head, args.engine.options())).collect::<Result<_, _>>()?;
    let mut source = match &heads[..] {
        [] => {
            let seq = args.chat.then(|| model.seq_new()).transpose()?;
            Speaker { model: &model, seq, seen: vec![], drafting: None }
        }
        heads => {
            let guesses = args.guesses.map(|n| n as usize);
            Speaker { model: &model, seq: None, seen: vec![], drafting: Some(Drafting::new(&model, heads, guesses)?) }
        }
    };
    if args.chat {
        return chat::chat(&mut source, args, &options);
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

/// The settings of generations.
struct Speaker<'a> {
    model: &'a Model,
    /// Sequence of a conversation.
    seq: Option<i32>,
    /// The tokens of the conversation that it was given last.
    seen: Vec<i32>,
    drafting: Option<Drafting<'a>>,
}

impl<'a> Speaker<'a> {
    fn generate(&mut self, prompt: &[i32], options: &GenOptions) -> Result<Made<'_, 'a>, Error> {
        Ok(match &mut self.drafting {
            Some(drafting) => Made::Drafted(drafting.generate(prompt, options)?),
            None => Made::Plain(self.model.generate(self.seq, prompt, options)?),
        })
    }

    /// Evaluates all of a long prompt but its last tokens, piece by piece, as long as `go_on` says so; whether it did
    /// to the end.
    fn prefill(&mut self, prompt: &[i32], options: &GenOptions, go_on: &dyn Fn() -> bool) -> Result<bool, Error> {
        let (Some(_), None) = (self.seq, &self.drafting) else { return Ok(true) };
        let piece = self.model.info().max_batch_tokens.max(1);
        let known = self.seen.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        // A token of each piece is chosen, and forgotten.
        let one = GenOptions { max_tokens: 1, no_text: true, adapter: options.adapter, ..GenOptions::default() };
        for end in (known + piece..prompt.len()).step_by(piece) {
            if !go_on() {
                return Ok(false);
            }
            self.model.generate(self.seq, &prompt[..end], &one)?.try_for_each(|piece| piece.map(|_| ()))?;
            self.seen = prompt[..end].to_vec();
        }
        Ok(go_on())
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

    /// Why it has ended, if it has (`LLMCC_FINISH_*`).
    fn finish(&self) -> Result<i32, Error> {
        match self {
            Made::Plain(generation) => Ok(generation.stats()?.finish),
            Made::Drafted(drafted) => drafted.finish(),
        }
    }
}

/// Prints pieces as they come.
fn stream(generation: &mut Made<'_, '_>) -> Result<(), Error> {
    generation.try_for_each(|piece| super::print(&piece?.text))
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
