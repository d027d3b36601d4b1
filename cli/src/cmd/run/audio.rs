//! Writes what is said in a sound (`llmcc run --audio`).

use crate::Error;
use crate::args::RunArgs;
use crate::loaded::{GenOptions, Model};
use crate::talk::{Made, Speaker, stats};
use llmcc_frontends::input;
use serde_json::{Value, json};
use std::path::Path;

/// Writes what is said in a WAV file, clip by clip.
///
/// # Errors
/// A file that is none; a model that does not hear, or not this language.
pub(super) fn transcribe(model: &Model, path: &Path, args: &RunArgs, options: &GenOptions) -> Result<(), Error> {
    let clip = model.clip()?;
    if !args.json {
        // Without a tokenizer there are tokens only.
        model.tokenize("", false)?;
    }
    let samples = model.samples_of(&input::read(path)?)?;
    let seq = model.seq_new()?;
    let mut source = Speaker { model, seq: Some(seq), seen: vec![], compressor: None };
    // Silence is a clip, too.
    let clips: Vec<&[f32]> = if samples.is_empty() { vec![&[]] } else { samples.chunks(clip.samples).collect() };
    let (mut text, mut documents) = (String::new(), vec![]);
    for (i, part) in clips.into_iter().enumerate() {
        let (own, document) = one(&mut source, (seq, part), args, options)?;
        let own = own.trim();
        let space = if text.is_empty() || own.is_empty() { "" } else { " " };
        if !args.json {
            crate::stdout::print(&format!("{space}{own}"))?;
        }
        text = format!("{text}{space}{own}");
        documents.push(with_start(document, (i * clip.samples) as f64 / f64::from(clip.rate)));
    }
    let last = if args.json { format!("{}\n", json!({ "text": text, "clips": documents })) } else { "\n".into() };
    crate::stdout::print(&last)
}

/// The text of one clip, and the document about it.
fn one(
    source: &mut Speaker,
    (seq, samples): (i32, &[f32]),
    args: &RunArgs,
    options: &GenOptions,
) -> Result<(String, Value), Error> {
    source.model.seq_encode_audio(seq, samples)?;
    let (language, task) = (args.language.as_deref().unwrap_or(""), args.task.as_deref().unwrap_or(""));
    let prompt = source.model.clip_prompt(seq, language, task)?;
    let mut generation = source.generate(&prompt, options)?;
    let mut made = Made::new(Some(""));
    made.follow(&mut generation, true, &|| false)?;
    let mut document = made.document(&generation)?;
    document["prompt"] = prompt.into();
    stats(&generation, args.stats)?;
    Ok((made.into_parts().0, document))
}

/// A document with the place of its clip, in seconds.
fn with_start(mut document: Value, seconds: f64) -> Value {
    document["start"] = seconds.into();
    document
}
