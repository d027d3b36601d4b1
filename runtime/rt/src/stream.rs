//! Turning tokens into text as they come: pieces are whole characters, and stop strings never slip
//! out.

use crate::error::Result;

/// Tokens of the prompt that are decoded along, because the first generated token's text may depend
/// on them (a leading space, for one).
const CONTEXT_TOKENS: usize = 6;
/// A character has at most four bytes, so with more unfinished tokens than this the bytes are
/// simply wrong.
const MAX_UNFINISHED: usize = 8;

/// Incremental detokenizer. Some tokens hold part of a character: their text comes with the token
/// that completes it.
#[derive(Clone)]
pub struct Detokenizer {
    /// Context, whose text is out already, then tokens whose text is not.
    ids: Vec<i32>,
    /// Start of the second part.
    read: usize,
}

/// Decodes a whole list of tokens.
pub type Decode<'a> = dyn Fn(&[i32]) -> Result<String> + 'a;

impl Detokenizer {
    /// Continues after `prompt`.
    pub fn new(prompt: &[i32]) -> Detokenizer {
        let ids = prompt[prompt.len().saturating_sub(CONTEXT_TOKENS)..].to_vec();
        Detokenizer { read: ids.len(), ids }
    }

    /// The text that `token` completes, maybe none.
    pub fn push(&mut self, token: i32, decode: &Decode) -> Result<String> {
        self.ids.push(token);
        let text = match decode(&self.ids) {
            Ok(text) => text,
            Err(error) => {
                self.ids.pop();
                return Err(error);
            }
        };
        if text.ends_with(char::REPLACEMENT_CHARACTER) && self.ids.len() - self.read <= MAX_UNFINISHED {
            return Ok(String::new());
        }
        self.emit(&text, decode)
    }

    /// The unfinished rest; incomplete characters become U+FFFD.
    pub fn finish(&mut self, decode: &Decode) -> Result<String> {
        if self.read == self.ids.len() {
            return Ok(String::new());
        }
        let text = decode(&self.ids)?;
        self.emit(&text, decode)
    }

    fn emit(&mut self, text: &str, decode: &Decode) -> Result<String> {
        let known = decode(&self.ids[..self.read])?;
        let new = match text.strip_prefix(known.as_str()) {
            Some(new) => new,
            // The context ended inside a character, which is complete only now.
            None => &text[common_prefix(&known, text)..],
        };
        let new = new.to_owned();
        if !new.is_empty() {
            // The tokens just shown are the next context.
            self.ids.drain(..self.read);
            self.read = self.ids.len();
        }
        Ok(new)
    }
}

/// Bytes of the longest common prefix of whole characters.
fn common_prefix(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(x, y)| x == y).map(|(x, _)| x.len_utf8()).sum()
}

/// Holds text back while it may be the start of a stop string.
pub struct StopStrings {
    stops: Vec<String>,
    held: String,
}

impl StopStrings {
    /// Watches for `stops`; empty ones are ignored.
    pub fn new(stops: &[String]) -> StopStrings {
        StopStrings { stops: stops.iter().filter(|s| !s.is_empty()).cloned().collect(), held: String::new() }
    }

    /// Text that may be shown after `text` has come, and whether a stop string was found: then the
    /// text ends before it.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        self.held += text;
        if let Some(at) = self.stops.iter().filter_map(|s| self.held.find(s.as_str())).min() {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let keep = self.stops.iter().map(|s| overlap(&self.held, s)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// The text held back, when nothing more comes.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Bytes of the longest end of `text` that is a proper start of `stop`.
fn overlap(text: &str, stop: &str) -> usize {
    let longest = text.len().min(stop.len() - 1);
    (1..=longest).rev().find(|&n| text.as_bytes().ends_with(&stop.as_bytes()[..n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens are bytes; a leading space is dropped, as SentencePiece decoders do.
    fn bytes(ids: &[i32]) -> Result<String> {
        let bytes: Vec<u8> = ids.iter().map(|&b| b as u8).collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(text.strip_prefix(' ').unwrap_or(&text).to_owned())
    }

    fn stream(prompt: &str, text: &[u8]) -> Vec<String> {
        let prompt: Vec<i32> = prompt.bytes().map(i32::from).collect();
        let mut detokenizer = Detokenizer::new(&prompt);
        let mut pieces: Vec<String> = text.iter().map(|&b| detokenizer.push(i32::from(b), &bytes).unwrap()).collect();
        pieces.push(detokenizer.finish(&bytes).unwrap());
        pieces
    }

    #[test]
    fn pieces_are_whole_characters() {
        assert_eq!(stream("", "aé€😀b".as_bytes()), ["a", "", "é", "", "", "€", "", "", "", "😀", "b", ""]);
        let long = "né 😀 ".repeat(50);
        assert_eq!(stream("x", long.as_bytes()).concat(), long);
    }

    #[test]
    fn leading_space_survives_after_a_prompt() {
        assert_eq!(stream("time", b" was").concat(), " was");
        assert_eq!(stream("", b" was").concat(), "was");
    }

    #[test]
    fn invalid_bytes_do_not_block() {
        assert_eq!(stream("", b"a\xffb").concat(), "a\u{fffd}b");
        assert_eq!(stream("", b"a\xc3").concat(), "a\u{fffd}");
        assert!(stream("", &[0xff; 20])[8].contains('\u{fffd}'));
    }

    fn stop(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let stops: Vec<String> = stops.iter().map(|&s| s.to_owned()).collect();
        let mut watch = StopStrings::new(&stops);
        let mut out = String::new();
        for piece in pieces {
            let (text, hit) = watch.push(piece);
            out += &text;
            if hit {
                return (out, true);
            }
        }
        (out + &watch.finish(), false)
    }

    #[test]
    fn stop_strings_end_the_text() {
        assert_eq!(stop(&["END"], &["abc", "E", "N", "D", "x"]), ("abc".into(), true));
        assert_eq!(stop(&["END"], &["abcEND"]), ("abc".into(), true));
        assert_eq!(stop(&["END"], &["E", "EN", "Ex"]), ("EENEx".into(), false));
        assert_eq!(stop(&["bb", "abc"], &["a", "b", "b"]), ("a".into(), true));
        assert_eq!(stop(&["é!"], &["é", "?"]), ("é?".into(), false));
        assert_eq!(stop(&["", "x"], &["y", "E"]), ("yE".into(), false));
    }
}
