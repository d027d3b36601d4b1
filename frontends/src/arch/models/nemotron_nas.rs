//! Nemotron-NAS (DeciLM; Puzzle, arXiv 2411.19146: Llama-3.3-Nemotron-Super, Nemotron-51B, Nemotron Ultra):
//! Llama whose layers differ. Each of the two blocks of a layer may be absent, or be one matrix; those that are
//! not have their own number of heads of keys, or their own width.

use crate::arch::blocks::decoder::{Half, embedding, head, layer};
use crate::arch::blocks::prelude::*;
use serde_json::{Map, Value as Json};

pub(crate) const ARCH: Arch = Arch {
    model_type: "nemotron-nas",
    class: "DeciLMForCausalLM",
    fields: &[IDENTITY, MODEL, ROTARY, ATTENTION_BIAS, MLP_BIAS, OWN, EACH],
    fixed: fixed! {
        // Each layer has its own.
        Any => num_key_value_heads intermediate_size;
    },
    goldens: &["nemotron_nas"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let blocks = blocks(f)?;
        let defaults = defaults! { ffn: 4, ..LLAMA };
        let d = Decoder::read(f, &defaults)?;
        if blocks.len() != d.layers.len() {
            let help = format!("as many as `num_hidden_layers` ({})", d.layers.len());
            return Err(f.invalid(BLOCKS, &blocks.len(), help));
        }
        let mut kinds = vec![];
        let mut d = d.with_biases(f);
        let reader = Reader { f, hidden: d.facts.hidden };
        for (spec, of_layer) in d.layers.iter_mut().zip(blocks) {
            let queries = spec.attention.heads.queries;
            let (first, kv) = reader.attention(&of_layer["attention"], queries)?;
            let (second, ffn) = reader.ffn(&of_layer["ffn"])?;
            (spec.attention.heads.kv, spec.mlp.ffn) = (kv, ffn);
            kinds.push([first, second]);
        }
        Ok(Box::new(Nas { decoder: d, kinds }))
    },
};

const BLOCKS: &str = "block_configs";

const OWN: &[Field] = fields! { num_attention_heads, head_dim, hidden_act, rms_norm_eps };

const EACH: &[Field] = &[Field::new(BLOCKS, Accepts::Any)];

/// The matrix in place of attention.
const LINEAR_ATTN: Part = Part("linear.attn");
/// The matrix in place of the MLP.
const LINEAR_MLP: Part = Part("linear.mlp");

const NAMES: Table = names! {
    "model.layers.{}." { LINEAR_ATTN => "self_attn.linear_attn", LINEAR_MLP => "mlp.linear_mlp" }
};

/// A block of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    /// There is none.
    Absent,
    /// One matrix, behind the block's norm.
    Linear,
    /// Attention, or the MLP.
    Whole,
}

/// The description of all layers.
fn blocks<'a>(f: &Fields<'a>) -> Result<&'a [Json], ConfigError> {
    match f.get(BLOCKS) {
        Given::Value(Json::Array(list)) => Ok(list),
        Given::Value(v) => Err(f.invalid_value(BLOCKS, v, "a list with an object for each layer".into())),
        Given::Null | Given::Absent => Err(f.missing(BLOCKS)),
    }
}

/// Reads the description of a block.
struct Reader<'f, 'a> {
    f: &'f Fields<'a>,
    hidden: usize,
}

impl Reader<'_, '_> {
    /// The attention of a layer, and its heads of keys.
    fn attention(&self, v: &Json, queries: usize) -> Result<(Block, usize), ConfigError> {
        let map = self.object(v, "attention", &["n_heads_in_group"])?;
        let block = self.block(map, "attention")?;
        if block != Block::Whole {
            return Ok((block, queries));
        }
        let wrong = |found: String| {
            let help = format!("a divisor of `num_attention_heads` ({queries})");
            ConfigError::Invalid { field: format!("{BLOCKS}.attention.n_heads_in_group"), found, expected: help }
        };
        let given = map.get("n_heads_in_group").unwrap_or(&Json::Null);
        let group = given.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        let group = group.filter(|n| queries.is_multiple_of(*n)).ok_or_else(|| wrong(given.to_string()))?;
        Ok((block, queries / group))
    }

    /// The MLP of a layer, and its width.
    fn ffn(&self, v: &Json) -> Result<(Block, usize), ConfigError> {
        let map = self.object(v, "ffn", &["ffn_mult", "intermediate_size"])?;
        let block = self.block(map, "ffn")?;
        if block != Block::Whole {
            return Ok((block, self.hidden));
        }
        let said = |name: &str| map.get(name).filter(|v| !v.is_null());
        let width = match (said("intermediate_size"), said("ffn_mult")) {
            (Some(n), _) => n.as_u64().and_then(|n| usize::try_from(n).ok()),
            // Three matrices have as many elements as two of that multiple of the width, up to a multiple of 256.
            (None, Some(m)) => m.as_f64().map(|m| {
                let width = (2.0 * m * self.hidden as f64 / 3.0) as usize;
                width.checked_next_multiple_of(256).unwrap_or(usize::MAX)
            }),
            (None, None) => None,
        };
        match width.filter(|n| (1..=1 << 20).contains(n)) {
            Some(width) => Ok((block, width)),
            None => Err(ConfigError::Invalid {
                field: format!("{BLOCKS}.ffn.ffn_mult"),
                found: map.get("ffn_mult").map_or("nothing".into(), ToString::to_string),
                expected: "a positive number".into(),
            }),
        }
    }

    /// Whether the block is there, and whole.
    fn block(&self, map: &Map<String, Json>, of: &str) -> Result<Block, ConfigError> {
        let flag = |name: &str| match map.get(name) {
            None | Some(Json::Null) => Ok(false),
            Some(v) => v.as_bool().ok_or_else(|| ConfigError::Invalid {
                field: format!("{BLOCKS}.{of}.{name}"),
                found: v.to_string(),
                expected: "true or false".into(),
            }),
        };
        Ok(match (flag("no_op")?, flag("replace_with_linear")?) {
            (true, _) => Block::Absent,
            (false, true) => Block::Linear,
            (false, false) => Block::Whole,
        })
    }

    /// The members of a block's description. Those that nothing here reads have to mean nothing.
    fn object<'v>(&self, v: &'v Json, of: &str, read: &[&str]) -> Result<&'v Map<String, Json>, ConfigError> {
        let Some(map) = v.as_object() else {
            return Err(self.f.missing(&format!("{BLOCKS}.{of}")));
        };
        let switches = ["no_op", "replace_with_linear"];
        let off = |v: &Json| v.is_null() || v == false;
        let usual = |name: &str, v: &Json| match name {
            // As of all MLPs.
            "hidden_act" => self.f.get("hidden_act").value() == Some(v),
            "gated" => v == true,
            _ => false,
        };
        let other = map.iter().find(|(name, v)| {
            !read.contains(&name.as_str()) && !switches.contains(&name.as_str()) && !off(v) && !usual(name, v)
        });
        match other {
            None => Ok(map),
            Some((name, v)) => Err(ConfigError::Unsupported {
                field: format!("{BLOCKS}.{of}.{name}"),
                found: v.to_string(),
                help: "this architecture supports attention over all tokens, gated MLPs, one matrix in the place of \
                       either, and nothing"
                    .into(),
            }),
        }
    }
}

#[derive(Debug)]
struct Nas {
    decoder: Decoder,
    /// The blocks of each layer.
    kinds: Vec<[Block; 2]>,
}

impl Shape for Nas {
    answered_by! { decoder: facts yields }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let (mut x, ropes) = embedding(l, &self.decoder)?;
        for (i, (spec, kinds)) in self.decoder.layers.iter().zip(&self.kinds).enumerate() {
            if *kinds == [Block::Whole; 2] {
                x = layer(l, &self.decoder, i, spec, (&x, None), &ropes)?;
                continue;
            }
            let halves = [(Half::First, ATTN_NORM, LINEAR_ATTN), (Half::Second, MLP_NORM, LINEAR_MLP)];
            for (kind, (half, norm, linear)) in kinds.iter().zip(halves) {
                x = match kind {
                    Block::Absent => x,
                    Block::Linear => self.matrix(l, i, [norm, linear], &x)?,
                    Block::Whole => {
                        layer(l, &self.decoder, i, &Layer { only: Some(half), ..*spec }, (&x, None), &ropes)?
                    }
                };
            }
        }
        head(l, &self.decoder, &x)
    }
}

impl Nas {
    /// `x + w·norm(x)`
    fn matrix(&self, l: &mut Lifter, i: usize, parts: [Part; 2], x: &Carried) -> Result<Carried, FrontendError> {
        let hidden = self.decoder.facts.hidden;
        let mut f = l.layer("matrix", i);
        let x = f.carried("x", x);
        let h = norm(&mut f, parts[0], self.decoder.norm, x, hidden);
        let y = linear(&mut f, parts[1], [hidden, hidden], false, h);
        let x = f.add(x, y);
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use crate::arch::Model;
    use crate::testing::golden;
    use serde_json::{Value, json};

    /// Descriptions of layers are read whole: anything that nothing here computes is refused by its name.
    #[test]
    fn descriptions_of_layers() {
        let text = std::fs::read(golden("nemotron_nas").join("config.json")).unwrap();
        let config: Value = serde_json::from_slice(&text).unwrap();
        let plain = format!("{:?}", Model::parse(&config).unwrap().shape);
        let with = |layer: usize, block: &str, name: &str, value: Value| {
            let mut config = config.clone();
            config["block_configs"][layer][block][name] = value;
            Model::parse(&config).map(|m| format!("{:?}", m.shape)).map_err(|e| e.to_string())
        };
        for (block, name, value) in [
            ("attention", "n_heads_in_group", json!(4)),
            ("attention", "no_op", json!(true)),
            ("attention", "replace_with_linear", json!(true)),
            ("ffn", "ffn_mult", json!(9.0)),
            ("ffn", "no_op", json!(true)),
        ] {
            assert_ne!(with(0, block, name, value).unwrap(), plain, "{name}");
        }
        for (block, name, value) in [
            ("attention", "n_heads_in_group", json!(3)),
            ("attention", "n_heads_in_group", json!(null)),
            ("attention", "window_length", json!(512)),
            ("attention", "no_op", json!("yes")),
            ("ffn", "ffn_mult", json!(0)),
            ("ffn", "moe", json!({ "num_local_experts": 8 })),
            ("ffn", "hidden_act", json!("relu")),
        ] {
            let error = with(0, block, name, value).unwrap_err();
            assert!(error.contains("block_configs"), "{error}");
        }
        let mut fewer = config.clone();
        fewer["block_configs"].as_array_mut().unwrap().pop();
        assert!(Model::parse(&fewer).unwrap_err().to_string().contains("num_hidden_layers"));
    }
}
