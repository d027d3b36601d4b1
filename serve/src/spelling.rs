//! Special tokens within texts.

use llmcc_model::Token;
use llmcc_turns::Format;
use llmcc_turns::grammar::Lexeme;

/// The text of a token; with the second argument, also of a special one.
type Detokenize<'a> = dyn Fn(Token, bool) -> Option<String> + 'a;

/// Texts and tokens of a model.
pub(crate) struct Spelling<'a> {
    pub(crate) tokenize: &'a dyn Fn(&str) -> Vec<Token>,
    pub(crate) detokenize: &'a Detokenize<'a>,
}

/// The text of a special token, which texts show only if they are asked to.
pub(crate) fn special(detokenize: &Detokenize, token: Token) -> Option<String> {
    let hidden = detokenize(token, false).is_some_and(|text| text.is_empty());
    if hidden { detokenize(token, true).filter(|text| !text.is_empty()) } else { None }
}

impl Spelling<'_> {
    /// The special tokens and the other texts of a text.
    pub(crate) fn lexemes(&self, text: &str) -> Vec<Lexeme> {
        let (mut all, mut rest) = (vec![], text);
        for token in (self.tokenize)(text) {
            let Some(name) = special(self.detokenize, token) else { continue };
            let Some((before, after)) = rest.split_once(name.as_str()) else { continue };
            if !before.is_empty() {
                all.push(Lexeme::Text(before.to_owned()));
            }
            all.extend(u32::try_from(token).map(Lexeme::Token));
            rest = after;
        }
        if !rest.is_empty() {
            all.push(Lexeme::Text(rest.to_owned()));
        }
        all
    }

    /// Whether a format has marks that are special tokens.
    pub(crate) fn has_special_marks(&self, format: &Format) -> bool {
        let is_special = |lexeme: &Lexeme| matches!(lexeme, Lexeme::Token(_));
        format.marks().iter().any(|mark| self.lexemes(mark).iter().any(is_special))
    }
}
