//! Common parts of ModernBERT and its decoders: windows in two layers of three, and a rotary table
//! for each kind.

use crate::config::ConfigError;
use crate::config::fields::{Fields, Given};
use crate::config::rope_kinds::{Beside, TwoRopes};

/// How many tokens a layer with a window sees on one side: the file's value, or half of both sides.
pub(crate) fn reach(f: &Fields) -> Result<usize, ConfigError> {
    const BOTH: &str = "local_attention";
    match (f.size("sliding_window"), f.size(BOTH)) {
        (Given::Value(n), _) => Ok(n),
        (_, Given::Null) => {
            let help = "this architecture expects windows in some layers: leave it out".to_string();
            Err(f.unsupported(BOTH, "null".into(), help))
        }
        (_, both) => Ok(both.or(128) / 2),
    }
}

/// Their rotary embeddings: files of older versions have the bases beside a scaling of both.
pub(crate) const ROPES: TwoRopes = TwoRopes {
    beside: Beside::Scaling { bases: ["global_rope_theta", "local_rope_theta"], both: true },
    ..TwoRopes::new([160_000.0, 10_000.0])
};
