//! Attention in chunks, of the models of Qwen2.5 for a million tokens (arXiv 2501.15383).

use crate::config::ConfigError;
use crate::config::common::Facts;
use crate::config::dictionary::fields;
use crate::config::fields::{Field, Fields};
use crate::config::known::Unread;

/// Fields that give their length.
pub(crate) const CHUNKS: &[Field] = fields! { dual_chunk_attention_config };
const OF_CHUNKS: &[Field] = fields! { chunk_size, local_size, original_max_position_embeddings };

/// Chunks change positions beyond the first one, and scores beyond the context of pretraining; up
/// to there attention is unchanged, and the compiled context ends there.
pub(crate) fn within_chunk(f: &Fields, facts: &mut Facts) -> Result<(), ConfigError> {
    let Some(map) = f.object(CHUNKS[0].name) else { return Ok(()) };
    let at = "dual_chunk_attention_config.";
    let r = f.inside_alone(map, at, &[OF_CHUNKS], &[])?;
    let chunk = r.size("chunk_size").or(8192);
    let local = r.count("local_size").unwrap_or(1024);
    if local >= chunk {
        return Err(r.invalid("local_size", &local, format!("less than `chunk_size` ({chunk})")));
    }
    let whole = facts.max_position;
    facts.max_position = whole.min(chunk - local).min(r.size("original_max_position_embeddings").or(whole));
    if facts.max_position < whole {
        let others = vec![format!("`{}` for contexts beyond {}, the longest here", CHUNKS[0].name, facts.max_position)];
        f.leave(Unread { others, ..Unread::default() });
    }
    Ok(())
}
