//! Output of `llmcc run` for models that write no text: embeddings, scores of classes, ranks of
//! documents.

use super::input::Input;
use crate::args::RunArgs;
use crate::loaded::Model;
use crate::manifest::Manifest;
use crate::{Error, json, texts};
use llmcc_model::sys::LLMCC_OUTPUT_SCORES;
use serde_json::{Value, json};

/// Tokens of the text or ids that were given.
fn ids(model: &Model, manifest: &Manifest, given: &Input, args: &RunArgs) -> Result<Vec<i32>, Error> {
    match (given, &args.prompt_name) {
        (Input::Ids(ids), _) => Ok(ids.clone()),
        (Input::Text(text), Some(name)) => {
            let prompt = manifest.prompts.get(name).ok_or_else(|| no_prompt(name, manifest))?;
            model.tokenize_prompted(&format!("{prompt}{text}"))
        }
        (Input::Text(text), None) => model.tokenize(text, true),
        (Input::Lines, _) => Ok(vec![]),
    }
}

/// Prints a result: a bare list, or with --json a document that has it under a name.
fn show(args: &RunArgs, name: &str, list: Value, tokens: Option<usize>) -> Result<(), Error> {
    let document = match (args.json, tokens) {
        (false, _) => list,
        (true, None) => json!({ name: list }),
        (true, Some(n)) => json!({ name: list, "prompt_tokens": n }),
    };
    json::print(&document)
}

fn no_prompt(name: &str, manifest: &Manifest) -> Error {
    let names: Vec<&str> = manifest.prompts.keys().map(String::as_str).collect();
    Error::Usage(match names.is_empty() {
        true => format!(
            "--prompt-name {name}: this model has no named prompts (the `prompts` in config_sentence_transformers.json)"
        ),
        false => format!("--prompt-name {name}: unknown prompt; the prompts of this model are {}", names.join(", ")),
    })
}

/// Prints the row of a text, or of token ids, as a JSON list of numbers.
pub(super) fn embed(model: &Model, manifest: &Manifest, given: &Input, args: &RunArgs) -> Result<(), Error> {
    let ids = ids(model, manifest, given, args)?;
    let n = ids.len();
    show(args, "embedding", json!(model.embed_as(&[ids], None, args.pooling)?), Some(n))
}

/// The name of class `i`.
fn name(manifest: &Manifest, i: usize) -> String {
    manifest.classes.get(i).cloned().unwrap_or_else(|| format!("class {i}"))
}

/// Classes by their scores, the best first; equal ones in their order.
fn best_first(manifest: &Manifest, scores: &[f32]) -> Vec<Value> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order.iter().map(|&i| json!({ "class": name(manifest, i), "score": scores[i] })).collect()
}

/// Prints the classes of a text, or of token ids, with their scores.
pub(super) fn classify(model: &Model, manifest: &Manifest, given: &Input, args: &RunArgs) -> Result<(), Error> {
    if model.info().output != LLMCC_OUTPUT_SCORES {
        return Err(Error::Artifact {
            path: args.artifact.clone(),
            message: "it does not score classes: --classify is for classifiers (...ForSequenceClassification)".into(),
        });
    }
    let ids = ids(model, manifest, given, args)?;
    let n = ids.len();
    let scores = model.embed(&[ids], None)?;
    show(args, "classes", Value::Array(best_first(manifest, &scores)), Some(n))
}

/// The texts to rank: from the command line, then from files.
fn documents(args: &RunArgs) -> Result<Vec<String>, Error> {
    let files = args.document_file.iter().map(|file| texts::of_file(file));
    args.document.iter().cloned().map(Ok).chain(files).collect()
}

/// Prints the documents with their scores as a JSON list; if there is one score each, the best
/// first, equal ones in their order; if there are several that have names, with the best one's name.
pub(super) fn rank(model: &Model, manifest: &Manifest, query: &str, args: &RunArgs) -> Result<(), Error> {
    let documents = documents(args)?;
    let pairs: Vec<_> = documents.iter().map(|d| (query, d.as_str())).collect();
    let scores = model.score_pairs(&pairs, args.truncate)?;
    let rows: Vec<&[f32]> = scores.chunks_exact(model.info().embed_columns).collect();
    let mut order: Vec<usize> = (0..rows.len()).collect();
    if model.info().embed_columns == 1 {
        order.sort_by(|a, b| rows[*b][0].total_cmp(&rows[*a][0]));
    }
    let ranked = order.iter().map(|&i| {
        let mut one = json!({ "document": i, "scores": rows[i], "text": documents[i] });
        if rows[i].len() > 1 && !manifest.classes.is_empty() {
            one["classes"] = json!(manifest.classes);
            one["class"] = best_first(manifest, rows[i])[0]["class"].take();
        }
        one
    });
    show(args, "documents", Value::Array(ranked.collect()), None)
}
