//! Tokens that classes of tokenizers put around a text, and around two.

use super::outside::Named;
use serde_json::{Map, Value, json};
use tokenizers::{Encoding, Token, Tokenizer};

/// A part of a model's input, and its type.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// The first text.
    A(u32),
    /// The second text.
    B(u32),
    /// The special token of a role.
    Role(&'static str, u32),
}

/// One text, and two.
#[derive(Debug)]
pub(super) struct Around {
    single: &'static [Part],
    pair: &'static [Part],
}

use Part::{A, B, Role};

const BOS: Part = Role("bos_token", 0);
const EOS: Part = Role("eos_token", 0);
const CLS: Part = Role("cls_token", 0);
const SEP: Part = Role("sep_token", 0);

/// XLM-RoBERTa, CamemBERT.
pub(super) const FAIRSEQ: Around = Around { single: &[BOS, A(0), EOS], pair: &[BOS, A(0), EOS, EOS, B(0), EOS] };
/// RoBERTa.
pub(super) const ROBERTA: Around = Around { single: &[CLS, A(0), SEP], pair: &[CLS, A(0), SEP, SEP, B(0), SEP] };
/// BERT, ALBERT.
pub(super) const BERT: Around =
    Around { single: &[CLS, A(0), SEP], pair: &[CLS, A(0), SEP, B(1), Role("sep_token", 1)] };
/// T5.
pub(super) const ENDED: Around = Around { single: &[A(0), EOS], pair: &[A(0), EOS, B(0), EOS] };
/// XLNet.
pub(super) const XLNET: Around = Around {
    single: &[A(0), SEP, Role("cls_token", 2)],
    pair: &[A(0), SEP, B(1), Role("sep_token", 1), Role("cls_token", 2)],
};
/// XGLM.
pub(super) const XGLM: Around = Around { single: &[EOS, A(0)], pair: &[EOS, A(0), EOS, EOS, B(0)] };

impl Around {
    /// The post-processor of a `tokenizer.json`.
    ///
    /// # Errors
    /// A role has no token, or one that is not there.
    pub fn json(&self, named: &Named, id: &dyn Fn(&str) -> Option<u64>) -> Result<Value, String> {
        let mut tokens = Map::new();
        let mut part = |part: &Part| match part {
            A(kind) => Ok(json!({ "Sequence": { "id": "A", "type_id": kind } })),
            B(kind) => Ok(json!({ "Sequence": { "id": "B", "type_id": kind } })),
            Role(role, kind) => {
                let text =
                    named.role(role).ok_or_else(|| format!("there is no `{role}`, which is needed beside a text"))?;
                let id = id(text).ok_or_else(|| format!("there is no token {text:?}, which is the `{role}`"))?;
                tokens.insert(text.into(), json!({ "id": text, "ids": [id], "tokens": [text] }));
                Ok::<_, String>(json!({ "SpecialToken": { "id": text, "type_id": kind } }))
            }
        };
        let single = self.single.iter().map(&mut part).collect::<Result<Vec<_>, _>>()?;
        let pair = self.pair.iter().map(&mut part).collect::<Result<Vec<_>, _>>()?;
        Ok(json!({ "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens }))
    }
}

/// Types of the tokens of a text alone, by the tokens that a tokenizer puts around it; `None` where all are 0.
pub(super) fn types_alone(tokenizer: &Tokenizer) -> Option<Value> {
    // A token that no vocabulary has stands for the text.
    let text = Encoding::from_tokens(vec![Token::new(u32::MAX, String::new(), (0, 0))], 0);
    let whole = tokenizer.post_process(text, None, true).ok()?;
    let (ids, types) = (whole.get_ids(), whole.get_type_ids());
    let at = ids.iter().position(|id| *id == u32::MAX)?;
    let typed = |range: std::ops::Range<usize>| -> Vec<Value> {
        ids[range.clone()].iter().zip(&types[range]).map(|(id, of)| json!([id, of])).collect()
    };
    let all = json!({ "before": typed(0..at), "text": types[at], "after": typed(at + 1..ids.len()) });
    types.iter().any(|of| *of != 0).then_some(all)
}
