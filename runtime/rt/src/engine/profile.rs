//! Time per kernel.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use llmcc_abi::NONE;

use crate::image::Image;

/// Calls and nanoseconds of every step of the plan, and the totals.
pub(crate) struct Profile {
    steps: Vec<(AtomicU64, AtomicU64)>,
    tokens: u64,
    batches: u64,
}

impl Profile {
    /// Nothing yet of `steps` steps.
    pub fn new(steps: usize) -> Profile {
        Profile { steps: (0..steps).map(|_| Default::default()).collect(), tokens: 0, batches: 0 }
    }

    /// Step `index` of the plan took `ns`.
    pub fn add(&self, index: usize, ns: u64) {
        let (time, calls) = &self.steps[index];
        time.fetch_add(ns, Relaxed);
        calls.fetch_add(1, Relaxed);
    }

    /// A chunk of `tokens` tokens is through.
    pub fn count(&mut self, tokens: usize) {
        self.tokens += tokens as u64;
        self.batches += 1;
    }

    /// See [`super::Engine::profile_json`].
    pub fn json(&self, image: &Image) -> String {
        let signed = |x: u32| if x == NONE { -1 } else { i64::from(x) };
        let mut out = format!("{{\"batches\":{},\"tokens\":{},\"steps\":[", self.batches, self.tokens);
        let mut comma = "";
        for regime in &image.regimes {
            let first = regime.first_step as usize;
            for index in first..first + regime.steps as usize {
                let (ns, calls) = &self.steps[index];
                if calls.load(Relaxed) == 0 {
                    continue;
                }
                let step = &image.steps[index];
                out += &format!(
                    "{comma}{{\"regime\":{},\"kernel\":{},\"layer\":{},\"calls\":{},\"ns\":{}}}",
                    signed(regime.max_tokens),
                    crate::json::string(image.kernel_name(step.kernel as usize)),
                    signed(step.layer),
                    calls.load(Relaxed),
                    ns.load(Relaxed)
                );
                comma = ",";
            }
        }
        out + "]}"
    }
}
