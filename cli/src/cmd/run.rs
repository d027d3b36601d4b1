//! `llmcc run`

mod chat;
mod lines;
mod rows;
mod sampling;
mod speaker;

use crate::Error;
use crate::args::RunArgs;
use crate::loaded::{GenOptions, Model};
use crate::manifest::Manifest;
use crate::speculate::Drafting;
use speaker::{Made, Speaker, stats};

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
