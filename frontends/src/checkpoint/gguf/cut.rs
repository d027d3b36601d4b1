//! Tensors of files that are several in Transformers, one below the other.

use super::file::{Config, OTHER_MODEL, Tensors, Wrong, head_dim, size};
use super::names::numbered;
use crate::checkpoint::safetensors::TensorInfo;

/// A tensor of a file that is cut.
pub(super) struct Cut {
    /// Its name; `{}` is the number of the layer.
    pub from: &'static str,
    /// The names in files of the parts it is cut into, from the top.
    pub to: &'static [&'static str],
    /// The rows of each, of so many.
    pub rows: fn(&Config, usize) -> Vec<usize>,
}

/// Queries, keys and values as one matrix, where Transformers has three: of GLM, and of any file that was
/// converted with `--fuse-qkv`.
pub(super) const QKV: &[Cut] = &[
    Cut {
        from: "blk.{}.attn_qkv.weight",
        to: &["blk.{}.attn_q.weight", "blk.{}.attn_k.weight", "blk.{}.attn_v.weight"],
        rows: attention_rows,
    },
    Cut {
        from: "blk.{}.attn_qkv.bias",
        to: &["blk.{}.attn_q.bias", "blk.{}.attn_k.bias", "blk.{}.attn_v.bias"],
        rows: attention_rows,
    },
];

/// Rows of queries, keys and values; queries may have gates of as many rows between them.
fn attention_rows(config: &Config, total: usize) -> Vec<usize> {
    let dim = head_dim(config).unwrap_or(0);
    let heads = size(config, "num_attention_heads");
    let of_keys = if config.contains_key("num_key_value_heads") { size(config, "num_key_value_heads") } else { heads };
    let [queries, keys] = [heads, of_keys].map(|heads| heads.saturating_mul(dim));
    let gated = queries.saturating_mul(2);
    let gated = keys.saturating_mul(2).checked_add(gated) == Some(total);
    vec![if gated { queries * 2 } else { queries }, keys, keys]
}

/// Cuts tensors into those that a file could have in their place.
pub(super) fn cut(cuts: &[Cut], config: &Config, tensors: &mut Tensors) -> Result<(), Wrong> {
    for cut in cuts {
        let names: Vec<(String, String)> =
            tensors.keys().filter_map(|name| Some((name.clone(), numbered(name, cut.from)?))).collect();
        for (name, layer) in names {
            let Some((shard, info)) = tensors.remove(&name) else { continue };
            let rows = (cut.rows)(config, info.shape.first().copied().unwrap_or(0));
            let parts = parts(&info, &rows).ok_or_else(|| {
                (format!("tensor `{name}` {:?} does not have the rows of its parts, {rows:?}", info.shape), OTHER_MODEL)
            })?;
            let called = cut.to.iter().map(|to| to.replace("{}", &layer));
            tensors.extend(called.zip(parts).map(|(called, info)| (called, (shard, info))));
        }
    }
    Ok(())
}

/// So many rows of a tensor each, which are all of it. A row is whole bytes.
fn parts(info: &TensorInfo, rows: &[usize]) -> Option<Vec<TensorInfo>> {
    let total = *info.shape.first()?;
    let size = info.bytes.len().checked_div(total).filter(|size| size * total == info.bytes.len())?;
    if rows.iter().try_fold(0usize, |n, rows| n.checked_add(*rows)) != Some(total) {
        return None;
    }
    let mut start = info.bytes.start;
    let one = |rows: &usize| {
        let bytes = start..start + rows * size;
        start = bytes.end;
        let shape = [&[*rows], &info.shape[1..]].concat();
        TensorInfo { dtype: info.dtype, shape, bytes }
    };
    Some(rows.iter().map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tensors(rows: usize) -> Tensors {
        let info = TensorInfo { dtype: super::super::blocks::floats(), shape: vec![rows], bytes: 100..100 + 4 * rows };
        Tensors::from([("blk.3.attn_qkv.bias".to_string(), (1, info))])
    }

    #[test]
    fn parts_are_the_rows_one_below_the_other() {
        let config = json!({ "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 3 });
        let Some(config) = config.as_object() else { unreachable!() };
        let mut all = tensors(24);
        assert_eq!(cut(QKV, config, &mut all), Ok(()));
        let found: Vec<_> = all.iter().map(|(name, (_, t))| (name.as_str(), t.shape[0], t.bytes.clone())).collect();
        let [q, k, v] = ["blk.3.attn_q.bias", "blk.3.attn_k.bias", "blk.3.attn_v.bias"];
        assert_eq!(found, [(k, 6, 148..172), (q, 12, 100..148), (v, 6, 172..196)]);
        // Queries with gates.
        let mut all = tensors(36);
        assert_eq!(cut(QKV, config, &mut all), Ok(()));
        assert_eq!(all.values().map(|(_, t)| t.shape[0]).collect::<Vec<_>>(), [6, 24, 6]);
        let (what, _) = cut(QKV, config, &mut tensors(23)).unwrap_err();
        assert_eq!(what, "tensor `blk.3.attn_qkv.bias` [23] does not have the rows of its parts, [12, 6, 6]");
    }
}
