//! `llmcc run`

mod audio;
mod chat;
mod input;
mod rows;

use crate::Error;
use crate::args::RunArgs;
use crate::loaded::{GenOptions, Model};
use crate::manifest::Manifest;
use crate::talk::{self, Conversation, Made, Speaker, sampling, stats};
use input::{Input, input};

/// Generates from a prompt, from token ids, or in a conversation; or embeds a text, or ranks
/// several.
///
/// # Errors
/// Not an artifact; no tokenizer where text is needed.
pub fn run(args: &RunArgs) -> Result<(), Error> {
    if let Some(option) = args.talk.given().filter(|_| !args.chat) {
        return Err(Error::Usage(format!(
            "{option} needs --chat: with -p or --ids the text is continued as it is, without roles"
        )));
    }
    let given = input(args)?;
    let model = args.engine.open(&args.artifact)?;
    let manifest = Manifest::of_model(&model)?;
    let mut options = sampling::options(&args.sampling, &manifest, args.chat || args.audio.is_some());
    if let Some(folder) = &args.draft.adapter {
        options.adapter = model.adapter_load(folder)?;
    }
    if args.embed {
        return rows::embed(&model, &manifest, &given, args);
    }
    if args.classify {
        return rows::classify(&model, &manifest, &given, args);
    }
    if let Some(query) = &args.rank {
        return rows::rank(&model, &manifest, query, args);
    }
    options.guesses = args.draft.source(&args.engine, &model)?;
    (options.images, options.grids) = images(args, &model, &given)?;
    options.most_guesses = args.draft.guesses.unwrap_or(0);
    options.form = args.form.form()?;
    if model.info().hears && args.audio.is_none() {
        return Err(Error::Usage("this model writes what is said in a sound: give --audio FILE, a WAV file".into()));
    }
    if let Some(path) = &args.audio {
        return audio::transcribe(&model, path, args, &options);
    }
    let seq = matches!(given, Input::Lines).then(|| model.seq_new()).transpose()?;
    let compressor = args.compress.compressor(&args.engine)?;
    let mut source = Speaker { model: &model, seq, seen: vec![], compressor: compressor.as_ref() };
    match given {
        Input::Lines => chat::chat(&mut source, args, &options),
        Input::Text(text) if args.chat => {
            let mut talk = Conversation::new(&model, &args.talk, &options)?;
            talk::once(&mut source, &mut talk, &text, chat::manner(args), &options)
        }
        Input::Text(text) => from_text(&mut source, &text, args, &options),
        Input::Ids(ids) => from_ids(&mut source, &ids, args, &options),
    }
}

/// Rows of the images of `--image`, and how many rows and columns of tokens each of these has.
fn images(args: &RunArgs, model: &Model, given: &Input) -> Result<(Vec<f32>, Vec<[u32; 2]>), Error> {
    if !args.image.is_empty() && matches!(given, Input::Lines) {
        return Err(Error::Usage("--image belongs to a single message: give it with -p or --prompt-file".into()));
    }
    let (mut rows, mut grids) = (vec![], vec![]);
    for path in &args.image {
        let file = llmcc_frontends::input::read(path)?;
        let own = model.image_rows(&file).and_then(|own| Ok((own, model.image_grid(&file)?)));
        let (own, grid) = own.map_err(|e| match e {
            Error::Artifact { message, .. } => Error::Failed(format!("{}: {message}", path.display())),
            other => other,
        })?;
        rows.extend(own);
        grids.push(grid);
    }
    Ok((rows, grids))
}

/// Continues a text.
fn from_text(source: &mut Speaker, text: &str, args: &RunArgs, options: &GenOptions) -> Result<(), Error> {
    let message = source.message(text)?;
    let prompt = &message.text[..];
    let ids = match &options.grids[..] {
        [] => source.model.tokenize(prompt, true)?,
        grids => source.model.tokenize(&source.model.image_prompt(prompt, grids)?, true)?,
    };
    // A text about a source does not go on with it.
    let about = source.model.info().needs_source;
    // Nothing is printed before all that can be refused has been accepted.
    let mut generation = source.generate(&ids, options)?;
    let mut made = Made::after(&message);
    if !args.json && !about {
        super::print(prompt)?;
    }
    made.follow(&mut generation, args.json, &|| false)?;
    super::print(&if args.json { made.line(&generation)? } else { "\n".into() })?;
    message.said(args.stats);
    stats(&generation, args.stats)
}

/// Continues token ids by token ids.
fn from_ids(source: &mut Speaker, ids: &[i32], args: &RunArgs, options: &GenOptions) -> Result<(), Error> {
    let options = GenOptions { no_text: true, ..options.clone() };
    let mut generation = source.generate(ids, &options)?;
    let (mut made, mut comma) = (Made::new(None), "");
    for piece in &mut generation {
        let piece = piece?;
        if piece.token >= 0 && !args.json {
            super::print(&format!("{comma}{}", piece.token))?;
            comma = ",";
        }
        made.add(&piece);
    }
    super::print(&if args.json { made.line(&generation)? } else { "\n".into() })?;
    stats(&generation, args.stats)
}
