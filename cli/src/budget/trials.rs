//! A model that is compiled, and measured, again and again.

use super::measure::{Meter, Part};
use super::sensitivity;
use super::texts::Text;
use crate::backends::Backends;
use crate::bounds::Bound;
use crate::measured::Domain;
use crate::options::CompileOptions;
use crate::session::{self, Lowered, Unnamed};
use crate::{Error, memory};
use llmcc_codegen::link::WeightsPlace;
use llmcc_ir::quant::Format;
use llmcc_ir::target::TargetSpec;
use llmcc_passes::Stored;
use llmcc_passes::damage::{Damage, Offer};
use std::collections::BTreeMap;
use std::path::Path;

/// A compilation within bounds.
pub struct Job<'a> {
    /// The model and its options.
    pub options: &'a CompileOptions,
    /// The bounds, at least one.
    pub bounds: &'a [Bound],
    /// The texts, at least one.
    pub texts: &'a [Text],
    /// Code generation.
    pub backends: &'a Backends,
    /// The artifact to be written; trials are files of its folder.
    pub out: &'a Path,
    /// This command line.
    pub program: &'a Path,
    /// Hears what is being done.
    pub say: &'a dyn Fn(&str),
}

/// Room for golden vectors and certificate, which trials lack, and for more code. (The finished artifact is checked.)
const RECORDS: f64 = 131_072.0;

/// Share by which a number of bytes may be exceeded: sums in another order.
pub(super) const ROUNDING: f64 = 1e-9;

/// A model that is compiled again and again.
pub(super) struct Trials<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) meter: Meter<'a>,
    /// Options of trials: one target, the one that is measured.
    pub(super) options: CompileOptions,
    pub(super) lowered: Lowered,
    pub(super) offers: Vec<Offer>,
    /// Predicted damages.
    pub(super) damage: Damage,
    /// Measurements with nothing rounded, on the part for trials.
    pub(super) base: Vec<Domain>,
    /// Bytes of the artifact beside its weights.
    pub(super) overhead: f64,
}

impl<'a> Trials<'a> {
    /// Compiles the model once, for its offers, and measures it with nothing rounded.
    pub(super) fn start(job: &'a Job<'a>, meter: Meter<'a>, target: &'static TargetSpec) -> Result<Trials<'a>, Error> {
        let damage = Damage { tables: job.bounds.iter().any(|b| b.is_size()), ..Damage::default() };
        let options = CompileOptions {
            targets: vec![target],
            place: WeightsPlace::Embed,
            weights: None,
            soname: None,
            deny_fallback: false,
            golden: None,
            explain: llmcc_passes::Explain::default(),
            damage: Some(damage.clone()),
            ..job.options.clone()
        };
        let lowered = session::lower(&options, job.backends)?;
        let offers = lowered.preferred().compiled.offers.clone();
        if offers.is_empty() {
            return Err(Error::Usage(
                "--budget: there is no choice about the matrices of this checkpoint, which are quantized already; \
                 leave the option out"
                    .into(),
            ));
        }
        let mut trials = Trials { job, meter, options, lowered, offers, damage, base: vec![], overhead: 0.0 };
        // Any rounding does damage, and none is allowed.
        trials.damage.weights = sensitivity::all_count(&trials.groups());
        let made = trials.make(&trials.damage.clone())?;
        (job.say)("budget: measuring the model with nothing rounded");
        trials.base = trials.meter.domains(made.path(), job.texts, Part::Trial)?;
        if job.bounds.iter().any(|b| matches!(b, Bound::Bytes(_))) {
            let options = CompileOptions { damage: trials.options.damage.clone(), ..job.options.clone() };
            trials.make_all(&options)?;
            trials.overhead += RECORDS;
        }
        Ok(trials)
    }

    /// The artifact by some options with all targets; notes how large it is beside its weights.
    pub(super) fn make_all(&mut self, options: &CompileOptions) -> Result<Unnamed, Error> {
        self.lowered.recompile(options, self.job.backends)?;
        let made = session::unnamed(&mut self.lowered, options, self.job.backends, self.job.out)?;
        self.overhead = made.bytes as f64 - self.weight_bytes();
        Ok(made)
    }

    pub(super) fn groups(&self) -> Vec<sensitivity::Group> {
        sensitivity::groups(&self.lowered.module, &self.offers)
    }

    /// Compiles by some damage, without packing anything.
    pub(super) fn compile(&mut self, damage: &Damage) -> Result<(), Error> {
        self.options.damage = Some(damage.clone());
        self.lowered.recompile(&self.options, self.job.backends)
    }

    /// An artifact by some damage.
    pub(super) fn make(&mut self, damage: &Damage) -> Result<Unnamed, Error> {
        self.compile(damage)?;
        self.pack()
    }

    /// An artifact of the model that was compiled last.
    pub(super) fn pack(&mut self) -> Result<Unnamed, Error> {
        session::unnamed(&mut self.lowered, &self.options, self.job.backends, self.job.out)
    }

    /// The forms of the version that was compiled last.
    pub(super) fn stored(&self) -> &[Stored] {
        &self.lowered.preferred().compiled.stored
    }

    /// Predicted damage of the version that was compiled last.
    pub(super) fn predicted(&self) -> f64 {
        self.lowered.preferred().compiled.damage.unwrap_or(0.0)
    }

    /// Bytes of the weights whose forms were chosen for the version that was compiled last, but for rows that fill
    /// up the last block.
    pub(super) fn chosen_bytes(&self) -> f64 {
        let taken = self.stored().iter().filter_map(|s| sensitivity::offered(&self.offers, s));
        taken.map(|(offer, format)| offer.bytes(format)).sum()
    }

    pub(super) fn weight_bytes(&self) -> f64 {
        self.lowered.versions.iter().map(|v| v.compiled.plan.weight_bytes()).max().unwrap_or(0) as f64
    }

    /// Measures how much damage groups do: first by kind, then by part of the layers.
    pub(super) fn measure_groups(&mut self) -> Result<(), Error> {
        let places = sensitivity::Places::of(&self.lowered.module, &self.lowered.parts, &self.groups());
        let mut weights = BTreeMap::new();
        for (i, kind) in places.kinds.iter().enumerate() {
            let mut results = vec![];
            for format in sensitivity::TRIED {
                let what = format!("kind {} of {}", i + 1, places.kinds.len());
                results.extend(self.trial(kind, format, &what)?);
            }
            let fitted = sensitivity::fit(&results);
            weights.extend(kind.iter().map(|w| (*w, fitted)));
        }
        let mut results = vec![];
        for (i, part) in places.parts.iter().enumerate() {
            let what = format!("part {} of {} of the layers", i + 1, places.parts.len());
            let Some(trial) = self.trial(part, sensitivity::TRIED[0], &what)? else { continue };
            let predicted = sensitivity::predicted(&self.lowered.module, &self.offers, self.stored(), part, &weights);
            results.push(sensitivity::PartTrial { group: part, kl: trial.kl, predicted });
        }
        sensitivity::by_parts(&mut weights, &results);
        self.damage.weights = weights;
        Ok(())
    }

    /// Measures the model with the matrices of a group stored in a format, and nothing else rounded. `None` where some
    /// have no such form.
    fn trial(
        &mut self,
        group: &sensitivity::Group,
        format: Format,
        what: &str,
    ) -> Result<Option<sensitivity::Trial>, Error> {
        if !self.is_offered(group, format) {
            return Ok(None);
        }
        (self.job.say)(&format!("budget: trial of {what} as {format}"));
        // (Until all are measured, the damage allows nothing to be rounded.)
        let made = self.make(&sensitivity::trial(self.damage.clone(), group, format))?;
        let found = self.meter.domains(made.path(), self.job.texts, Part::Trial)?;
        let kl = mean_kl(&found) - mean_kl(&self.base);
        Ok(Some(sensitivity::Trial::of(&self.lowered.module, &self.offers, self.stored(), group, kl)))
    }

    /// Whether all matrices of a group may have a format.
    pub(super) fn is_offered(&self, group: &sensitivity::Group, format: Format) -> bool {
        let belongs = |o: &&Offer| sensitivity::belong(&self.lowered.module, &o.weights, group);
        let mut own = self.offers.iter().filter(belongs).peekable();
        own.peek().is_some() && own.all(|o| o.forms.iter().any(|(f, _)| f.has_codes_of(format)))
    }

    /// The value that the model compiled last has of a bound that is not measured.
    pub(super) fn resource(&self, bound: Bound) -> f64 {
        let v = self.lowered.preferred();
        match bound {
            Bound::Bytes(_) => self.weight_bytes() + self.overhead,
            Bound::Memory(_, context) => memory::Need::at(v, context.unwrap_or(usize::MAX)).total() as f64,
            Bound::Speed(_) => 1.0 / v.compiled.predicted_decode_seconds(),
            Bound::Kl(_) | Bound::Perplexity(_) => 0.0,
        }
    }
}

/// The mean divergence over domains.
pub(super) fn mean_kl(domains: &[Domain]) -> f64 {
    domains.iter().map(|d| d.found.kl.mean.mean).sum::<f64>() / domains.len().max(1) as f64
}
