//! The certificate of an artifact whose damage was measured: its record in the manifest.
//!
//! Divergences and likelihoods are in nats. All of it follows from the checkpoint, the options, the texts and the kind
//! of processor that computed; `llmcc verify --certificate TEXT` measures again.

use crate::bounds::Bound;
use crate::divergence::Divergence;
use llmcc_abi::tree::Hash;
use serde::{Deserialize, Serialize};

/// Measurements of a finished artifact against the checkpoint in its own types.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measured {
    /// The bounds that were asked for (`kl=0.01`), each with what the artifact has of it.
    pub bounds: Vec<Held>,
    /// The reference: how it was compiled.
    pub reference: String,
    /// Target of the version that was measured.
    pub target: String,
    /// Versions that were not measured, since the compiling machine does not run them or runs a better one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_measured: Vec<String>,
    /// Measurements on text that the choice was not made by, a domain each.
    pub domains: Vec<Domain>,
    /// Measurements on the text by which the choice was made.
    pub chosen_by: Vec<Domain>,
    /// Every decision, with its part of the damage.
    pub decisions: Vec<Decision>,
    /// Rounds of choosing and measuring.
    pub rounds: usize,
    /// Rewrites that were applied, with how often. No rewrite changes the function that is computed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rewrites: Vec<String>,
    /// Hashes of code and weights of the artifact that was measured: no other one gets this record.
    #[serde(skip)]
    pub hashes: Option<(Hash, Hash)>,
}

/// A bound and what the artifact has of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Held {
    /// As given: `kl=0.01`, `ppl=+1%`, `bytes=700M`, `memory=1G@8192`, `tokens/s=60`.
    pub bound: String,
    /// The artifact's value, in the bound's unit (bytes, tokens per second, nats; for `ppl` the ratio minus 1).
    pub value: f64,
    /// Whether the value was measured, or follows from the plan.
    pub measured: bool,
}

/// A text, and the measurements on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Domain {
    /// Name of the text: its file's, or `builtin`.
    pub name: String,
    /// SHA-256 of the part of it that was measured, hex.
    pub sha256: String,
    /// Bytes of that part.
    pub bytes: usize,
    /// Measurements.
    #[serde(flatten)]
    pub found: Divergence,
}

/// A decision about matrices that are stored alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Decision {
    /// Function and parameter.
    pub what: String,
    /// Their format.
    #[serde(rename = "as")]
    pub form: String,
    /// Root mean square relative error of storing them.
    pub relative_rms_error: f64,
    /// Divergence that storing them so causes by itself, as predicted from trials, in nats.
    pub predicted_kl: f64,
}

impl Measured {
    /// The message about an artifact with more bytes than a bound allows.
    pub fn too_large(&self, bytes: u64) -> Option<String> {
        let bounds = self.bounds.iter().filter_map(|held| Bound::parse(&held.bound).ok());
        let broken = bounds.filter(|b| matches!(b, Bound::Bytes(_))).find(|b| b.load(bytes as f64) > 1.0)?;
        Some(format!(
            "--budget {broken} cannot be kept: the finished artifact has {}; nothing was written; allow more bytes",
            broken.words(bytes as f64)
        ))
    }

    /// In words, a line for each bound and each domain.
    pub fn lines(&self) -> Vec<String> {
        let held = |h: &Held| {
            let by = if h.measured { "measured" } else { "predicted" };
            let value = Bound::parse(&h.bound).map_or_else(|_| h.value.to_string(), |b| b.words(h.value));
            format!("{}: {value}, {by}", h.bound)
        };
        self.bounds.iter().map(held).chain(self.domains.iter().map(Domain::line)).collect()
    }
}

impl Domain {
    /// In words.
    pub fn line(&self) -> String {
        let d = &self.found;
        format!(
            "{}: KL mean {:.6}{}, 99th percentile {:.6}, largest {:.6}; the same most probable token {:.2} %; \
             perplexity {:.4}, reference {:.4}; {} tokens",
            self.name,
            d.kl.mean.mean,
            d.kl.mean.interval(6, 1.0),
            d.kl.p99,
            d.kl.largest,
            d.top1.mean * 100.0,
            d.perplexity,
            d.reference_perplexity,
            d.tokens
        )
    }
}
