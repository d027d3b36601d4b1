//! Types of the tokens of a text alone, where its tokenizer gives special tokens others than 0: XLNet's last token
//! is of type 2.

use crate::json::Json;

/// A special token and its type.
type Typed = (i32, i32);

/// Types of the tokens of a text alone, as its tokenizer puts special tokens around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypesAlone {
    /// Special tokens before the text.
    before: Vec<Typed>,
    /// The type of its own tokens.
    text: i32,
    /// Special tokens after it.
    after: Vec<Typed>,
}

impl TypesAlone {
    /// Reads `{"before": [[id, type]...], "text": type, "after": [[id, type]...]}`.
    pub(crate) fn parse(json: &Json) -> Option<TypesAlone> {
        let whole = |x: &Json| if let Json::Int(n) = x { i32::try_from(*n).ok().filter(|n| *n >= 0) } else { None };
        let typed = |x: &Json| match x {
            Json::List(pair) if pair.len() == 2 => Some((whole(&pair[0])?, whole(&pair[1])?)),
            _ => None,
        };
        let list = |key: &str| match json.get(key)? {
            Json::List(all) => all.iter().map(typed).collect::<Option<Vec<Typed>>>(),
            _ => None,
        };
        Some(TypesAlone { before: list("before")?, text: whole(json.get("text")?)?, after: list("after")? })
    }

    /// Appends the types of a text's tokens. Special tokens have their types where they begin or end the text, all of
    /// them; anywhere else they are the text's own.
    pub fn append(&self, tokens: &[i32], types: &mut Vec<i32>) {
        let start = types.len();
        types.resize(start + tokens.len(), self.text);
        let own = &mut types[start..];
        let same = |of: &[i32], special: &[Typed]| of.iter().eq(special.iter().map(|(id, _)| id));
        let begins = tokens.get(..self.before.len()).is_some_and(|of| same(of, &self.before));
        let taken = if begins { self.before.len() } else { 0 };
        let end = tokens.len().checked_sub(self.after.len()).filter(|end| *end >= taken);
        if begins {
            own.iter_mut().zip(&self.before).for_each(|(to, (_, of))| *to = *of);
        }
        if let Some(end) = end.filter(|end| same(&tokens[*end..], &self.after)) {
            own[end..].iter_mut().zip(&self.after).for_each(|(to, (_, of))| *to = *of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_tokens_have_types_at_the_ends_only() {
        let json: Json = serde_json::from_str(r#"{"before":[[1,3]],"text":0,"after":[[4,0],[3,2]]}"#).unwrap();
        let types = TypesAlone::parse(&json).unwrap();
        for (tokens, expected) in [
            (&[1, 9, 4, 3][..], &[3, 0, 0, 2][..]),
            (&[1, 3, 1, 4, 3], &[3, 0, 0, 0, 2]),
            (&[9, 4, 3], &[0, 0, 2]),
            (&[1, 9, 3], &[3, 0, 0]),
            (&[1, 4, 3], &[3, 0, 2]),
            (&[3], &[0]),
            (&[], &[]),
        ] {
            let mut all = vec![7];
            types.append(tokens, &mut all);
            assert_eq!(all[1..], *expected, "{tokens:?}");
        }
        for bad in [r#"{"before":[],"after":[]}"#, r#"{"before":[[1]],"text":0,"after":[]}"#, r#"{"text":0}"#, "[]"] {
            assert_eq!(TypesAlone::parse(&serde_json::from_str(bad).unwrap()), None, "{bad}");
        }
    }
}
