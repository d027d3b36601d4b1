//! The texts of calibration: documents of several sources, and the choice among them.

use crate::budget::Text;
use crate::digest;
use crate::documents::{self, Document};
use crate::error::Error;
use crate::options::TextSource;
use crate::statistics::{Record, TextRecord};
use sha2::{Digest, Sha256};

/// One of so many documents is kept out.
const KEPT_OUT: usize = 10;
/// Sources of fewer documents keep out none.
const FEW: usize = 8;

/// The tokens of a text with the special tokens that the model expects, or, if the second argument says so, of a
/// conversation (JSON).
pub type Tokenize<'a> = dyn Fn(&str, bool) -> Result<Vec<i32>, Error> + 'a;

/// The tokens chosen.
pub struct Chosen {
    /// Sequences to measure.
    pub rows: Vec<Vec<i32>>,
    /// Sequences of documents that were kept out.
    pub held_out: Vec<Vec<i32>>,
    /// The choice; drift is not known yet.
    pub record: Record,
}

/// Chooses sequences of `tokens` tokens in all, each of at most `window`.
///
/// # Errors
/// Texts that cannot be read or have no tokens; errors of `tokenize`.
pub fn choose(
    sources: &[TextSource],
    (tokens, window, seed): (usize, usize, u64),
    tokenize: &Tokenize<'_>,
) -> Result<Chosen, Error> {
    let whole: f64 = sources.iter().map(|s| s.weight).sum();
    let mut chosen = Chosen { rows: vec![], held_out: vec![], record: Record { seed, ..Record::default() } };
    let mut share = 0.0;
    for source in sources {
        // Shares are rounded such that their sum is the whole.
        let before = (tokens as f64 * share / whole).round() as usize;
        share += source.weight;
        let room = (tokens as f64 * share / whole).round() as usize - before;
        chosen.add(source, room, (window, seed), tokenize)?;
    }
    let count = |rows: &[Vec<i32>]| rows.iter().map(Vec::len).sum::<usize>();
    chosen.record.tokens = count(&chosen.rows);
    chosen.record.sequences = chosen.rows.len();
    chosen.record.held_out_tokens = count(&chosen.held_out);
    if chosen.rows.is_empty() { Err(Error::Usage("--calib: the texts have no tokens".into())) } else { Ok(chosen) }
}

impl Chosen {
    fn add(
        &mut self,
        source: &TextSource,
        room: usize,
        (window, seed): (usize, u64),
        tokenize: &Tokenize<'_>,
    ) -> Result<(), Error> {
        let documents = of_source(source)?;
        let kept_out = if documents.len() < FEW { 0 } else { documents.len().div_ceil(KEPT_OUT) };
        // By their hashes: a random order, which that of the files does not change.
        let mut order: Vec<([u8; 32], Document)> = documents.into_iter().map(|d| (hash(&d, seed), d)).collect();
        order.sort_by_key(|(hash, _)| *hash);
        let (mut sum, mut used, mut left, mut kept) = (Sha256::new(), 0, room, room / KEPT_OUT);
        for (at, (hash, document)) in order.iter().enumerate() {
            let out = at < kept_out;
            let left = if out { &mut kept } else { &mut left };
            if *left == 0 {
                continue;
            }
            let ids = match document {
                Document::Text(text) => tokenize(text, false)?,
                Document::Chat(messages) => tokenize(messages, true)?,
            };
            let rows = if out { &mut self.held_out } else { &mut self.rows };
            for part in ids.chunks(window) {
                let part = &part[..part.len().min(*left)];
                *left -= part.len();
                rows.extend((!part.is_empty()).then(|| part.to_vec()));
            }
            if !out {
                sum.update(hash);
                used += 1;
            }
        }
        self.record.texts.push(TextRecord {
            name: source.name(),
            weight: source.weight,
            sha256: digest::hex(&sum.finalize()),
            documents: used,
            tokens: room - left,
        });
        Ok(())
    }
}

/// The first sequences with so many tokens in all.
pub fn first_tokens(rows: &[Vec<i32>], tokens: usize) -> Vec<Vec<i32>> {
    let mut left = tokens;
    let part = |row: &Vec<i32>| {
        let part = row[..row.len().min(left)].to_vec();
        left -= part.len();
        part
    };
    rows.iter().map(part).take_while(|part| !part.is_empty()).collect()
}

/// Refuses a path where nothing can be read.
///
/// # Errors
/// [`Error::Io`].
pub fn check(source: &TextSource) -> Result<(), Error> {
    let Some(path) = &source.path else { return Ok(()) };
    std::fs::metadata(path).map(|_| ()).map_err(|e| Error::io("read", path, e))
}

fn of_source(source: &TextSource) -> Result<Vec<Document>, Error> {
    let Some(path) = &source.path else { return Ok(of_text(Text::builtin())) };
    let documents: Vec<Vec<Document>> =
        documents::files(path)?.iter().map(|file| documents::of_file(file, of_plain)).collect::<Result<_, _>>()?;
    Ok(documents.into_iter().flatten().collect())
}

/// The order of a document among others.
fn hash(document: &Document, seed: u64) -> [u8; 32] {
    let (Document::Text(text) | Document::Chat(text)) = document;
    Sha256::new().chain_update(seed.to_le_bytes()).chain_update(text).finalize().into()
}

/// The documents of a plain text.
fn of_plain(text: &str) -> Vec<Document> {
    let divided = Text::of("", text);
    // (A line or two cannot be divided.)
    let whole = divided.choice.is_empty() && !text.trim().is_empty();
    if whole { vec![Document::Text(text.trim().into())] } else { of_text(divided) }
}

/// The documents that a choice may be made by: those that certificates are made by stay unseen.
fn of_text(text: Text) -> Vec<Document> {
    text.choice.into_iter().map(Document::Text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::SEED;

    fn words(text: &str, _chat: bool) -> Result<Vec<i32>, Error> {
        Ok(text.split_whitespace().map(|w| w.len() as i32).collect())
    }

    fn of_builtin(tokens: usize) -> Chosen {
        choose(&[TextSource { path: None, weight: 1.0 }], (tokens, 64, SEED), &words).expect("chosen")
    }

    #[test]
    fn documents_are_chosen_until_there_are_tokens_enough() {
        let (few, many) = (of_builtin(500), of_builtin(4000));
        assert_eq!((few.record.tokens, many.record.tokens), (500, 4000));
        assert_eq!(few.rows[..few.rows.len() - 1], many.rows[..few.rows.len() - 1]);
        assert!(few.rows.iter().all(|row| !row.is_empty() && row.len() <= 64));
        assert!(many.record.held_out_tokens > 0 && many.record.held_out_tokens <= 400, "{:?}", many.record);
        assert_eq!(many.record.texts[0].name, "builtin");
    }

    #[test]
    fn shares_follow_weights() {
        let folder = tempfile::tempdir().expect("a folder");
        let (a, b) = (folder.path().join("a.txt"), folder.path().join("b.jsonl"));
        std::fs::write(&a, "one two three ".repeat(100)).expect("written");
        let line = |i: usize| format!("{{\"text\": \"{}\"}}\n", format!("w{i} ").repeat(50));
        std::fs::write(&b, (0..20).map(line).collect::<String>() + "\n\"a string\"\n").expect("written");
        let sources = [TextSource { path: Some(a), weight: 1.0 }, TextSource { path: Some(b.clone()), weight: 3.0 }];
        let chosen = choose(&sources, (101, 1000, 1), &words).expect("chosen");
        assert_eq!(chosen.record.texts.iter().map(|t| t.tokens).collect::<Vec<_>>(), [25, 76]);
        std::fs::write(&b, "{\"text\": \"x\"}\n{\"other\": 1}\n").expect("written");
        let error = choose(&sources[1..], (10, 10, 1), &words).err().expect("an error").to_string();
        assert!(error.contains("b.jsonl: line 2") && error.contains("\"messages\""), "{error}");
    }
}
