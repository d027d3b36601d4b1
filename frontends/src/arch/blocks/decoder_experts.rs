//! Experts that are like the MLPs of a decoder.

use crate::arch::blocks::decoder::Decoder;
use crate::arch::blocks::experts::{Experts, Place, Routing, Stored};
use crate::config::ConfigError;
use crate::config::fields::Fields;
use llmcc_ir::graph::{Router, UnaryOp};

impl Experts {
    /// Experts of the width and activation that a decoder's MLP has, stored each by itself, and
    /// nothing else.
    pub(crate) fn like(d: &Decoder, router: Router, count: usize) -> Experts {
        Experts::plain(router, count, d.layers.first().map_or((0, UnaryOp::Silu), |l| (l.mlp.ffn, l.mlp.act)))
    }

    /// Experts of this width and activation, gated, stored each by itself, and nothing else.
    pub(crate) fn plain(router: Router, count: usize, (ffn, act): (usize, UnaryOp)) -> Experts {
        Experts {
            router,
            count,
            ffn,
            act,
            gated: true,
            limits: None,
            routing: Routing::default(),
            stored: Stored::Each,
            correction: None,
            shared: None,
            place: Place::default(),
            row: None,
        }
    }
}

/// Refuses another activation than silu: of classes whose experts have it, whatever the file says of MLPs.
pub(crate) fn silu_alone(f: &Fields, d: &Decoder) -> Result<(), ConfigError> {
    match d.layers.first().map(|layer| layer.mlp.act) {
        Some(UnaryOp::Silu) | None => Ok(()),
        Some(_) => {
            let help = "this architecture activates experts by silu";
            Err(f.unsupported("hidden_act", f.text("hidden_act").unwrap_or_default().into(), help.into()))
        }
    }
}
