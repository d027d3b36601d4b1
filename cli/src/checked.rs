//! The result of the check of a calibrated artifact ([`crate::calib::check`]).

use crate::divergence::{Divergence, Mean};
use serde::Serialize;
use serde_json::{Value, json};

/// Ratio of both divergences from which an artifact is doubted.
const DOUBTED: f64 = 2.0;

/// The result of a check.
#[derive(Clone, Debug)]
pub enum Check {
    /// There was none, for this reason.
    Absent(String),
    /// Divergences from the checkpoint in its own types.
    Measured(Box<Found>),
}

/// See [`Check`].
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// On documents that the artifact was calibrated by.
    pub used: Divergence,
    /// On documents that were kept out.
    pub held_out: Divergence,
}

impl Check {
    /// In a few words.
    pub fn line(&self) -> String {
        match self {
            Check::Absent(why) => format!("not checked on texts kept out: {why}"),
            Check::Measured(found) => {
                let Found { used, held_out } = &**found;
                format!("KL {} on texts kept out, {} on those used", nats(&held_out.kl.mean), nats(&used.kl.mean))
            }
        }
    }

    /// A warning, where the damage is much larger on texts that were kept out.
    pub fn doubt(&self) -> Option<String> {
        let Check::Measured(found) = self else { return None };
        let (used, held_out) = (&found.used.kl.mean, &found.held_out.kl.mean);
        (held_out.least() > DOUBTED * used.most()).then(|| {
            format!(
                "on texts that were kept out of the calibration the artifact diverges {:.1} times as much from the \
                 checkpoint as on those that were used ({}; {}): the rounding fits these texts alone, or the \
                 checkpoint was made to fail when it is rounded so; give other texts or more (--calib, \
                 --calib-tokens), or bound the damage as measured (--budget)",
                held_out.mean / used.mean,
                nats(held_out),
                nats(used)
            )
        })
    }

    /// As JSON: divergences in nats.
    pub fn document(&self) -> Value {
        match self {
            Check::Absent(why) => json!({ "absent": why }),
            Check::Measured(found) => json!(found),
        }
    }
}

fn nats(mean: &Mean) -> String {
    format!("{:.5}{}", mean.mean, mean.interval(5, 1.0))
}
