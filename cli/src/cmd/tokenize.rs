//! `llmcc tokenize`: tokens of a text, and the text of tokens.

use crate::advice::{is_checkpoint, is_elf, missing};
use crate::args::TokenizeArgs;
use crate::manifest::Manifest;
use crate::report::plain;
use crate::{Error, texts};
use llmcc_abi::tree::part;
use llmcc_codegen::sealed::Sealed;
use llmcc_frontends::Checkpoint;
use llmcc_frontends::tokenizer::{Reader, TextAssets};
use serde_json::json;
use std::fmt::{Display, Write};
use std::path::Path;

/// Prints the tokens of a text, or the text of tokens.
///
/// # Errors
/// Neither an artifact nor a checkpoint; no tokenizer; a text that the tokenizer refuses; tokens beyond the vocabulary.
pub fn run(args: &TokenizeArgs) -> Result<(), Error> {
    // Before the tokenizer is read, which may take long.
    let text = match &args.decode {
        Some(_) => String::new(),
        None => texts::given(&args.text, "-p TEXT or --prompt-file FILE")?,
    };
    let (reader, vocab) = open(&args.model)?;
    let refused = |e| broken(&args.model, e);
    super::print(&match &args.decode {
        Some(ids) => {
            check(ids, vocab)?;
            let text = reader.decode(ids, !args.no_special).map_err(refused)?;
            if args.json { format!("{}\n", json!({ "text": text })) } else { format!("{text}\n") }
        }
        None => shown(&reader, &reader.encode(&text, !args.no_special).map_err(refused)?, args),
    })
}

fn broken(path: &Path, why: impl Display) -> Error {
    Error::Artifact { path: path.to_owned(), message: why.to_string() }
}

/// The tokenizer of an artifact or a checkpoint, and how many tokens the model knows.
fn open(path: &Path) -> Result<(Reader, usize), Error> {
    if is_checkpoint(path) && !is_elf(path) {
        if !path.exists() {
            return Err(Error::Usage(format!("{}: {}", path.display(), missing(path))));
        }
        let checkpoint = Checkpoint::open_with(path, &[])?;
        let reader = Reader::of(&TextAssets::load(&checkpoint)?).map_err(|e| broken(path, e))?;
        let vocab = llmcc_frontends::arch::config(&checkpoint)?.facts().vocab;
        let none = || broken(path, "the checkpoint has no tokenizer: add its tokenizer.json");
        return Ok((reader.ok_or_else(none)?, vocab));
    }
    let sealed = Sealed::open(path)?;
    let tokenizer = sealed.bytes(part::TOKENIZER)?;
    if tokenizer.is_empty() {
        return Err(broken(path, "it has no tokenizer: its checkpoint had none"));
    }
    let reader = Reader::new(&tokenizer, &sealed.bytes(part::TEXT_CONFIG)?).map_err(|e| broken(path, e))?;
    Ok((reader, Manifest::of(path)?.info.vocab))
}

/// Refuses tokens beyond the vocabulary.
fn check(ids: &[i32], vocab: usize) -> Result<(), Error> {
    match ids.iter().enumerate().find(|(_, id)| usize::try_from(**id).map_or(true, |id| id >= vocab)) {
        None => Ok(()),
        Some((i, id)) => Err(Error::Usage(format!(
            "--decode: token {id} (of {}, the {}) is none of this model, whose tokens are 0 to {}",
            ids.len(),
            ordinal(i + 1),
            vocab.saturating_sub(1)
        ))),
    }
}

fn ordinal(n: usize) -> String {
    let ending = match (n % 10, n % 100) {
        (1, r) if r != 11 => "st",
        (2, r) if r != 12 => "nd",
        (3, r) if r != 13 => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

/// Tokens with their pieces, a line each; or how many; or a document.
fn shown(reader: &Reader, ids: &[i32], args: &TokenizeArgs) -> String {
    if args.count {
        return format!("{}\n", ids.len());
    }
    let pieces: Vec<String> = ids.iter().map(|id| reader.piece(*id).unwrap_or_default()).collect();
    if args.json {
        return format!("{}\n", json!({ "count": ids.len(), "ids": ids, "pieces": pieces }));
    }
    ids.iter().zip(pieces).fold(String::new(), |mut lines, (id, piece)| {
        let _ = writeln!(lines, "{id:>7}  {}", plain(&piece).replace('\n', "\\n").replace('\t', "\\t"));
        lines
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_beyond_the_vocabulary_are_refused() {
        assert!(check(&[0, 9], 10).is_ok());
        for (ids, says) in [(&[1, 10][..], "token 10 (of 2, the 2nd)"), (&[-1], "token -1 (of 1, the 1st)")] {
            let found = check(ids, 10).unwrap_err().to_string();
            assert!(found.contains(says) && found.contains("0 to 9"), "{found}");
        }
        assert_eq!(
            [1, 2, 3, 4, 11, 12, 13, 21, 112].map(ordinal).join(" "),
            "1st 2nd 3rd 4th 11th 12th 13th 21st 112th"
        );
    }
}
