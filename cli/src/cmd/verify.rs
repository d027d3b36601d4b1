//! `llmcc verify`: are the artifact's bytes unchanged, and does it compute correctly here?

mod certificate;
mod said;

use crate::Error;
use crate::args::{GoldenArgs, VerifyArgs};
use crate::digest::hex;
use crate::golden::{self, Answer, Batching, Distance, Golden, Ran};
use crate::manifest::{GoldenRecord, Manifest, Version};
use crate::report::count;
use crate::stamp::Stamp;
use crate::{program, signature};
use llmcc_abi::tree::{self, Hash, PartDesc, part};
use llmcc_codegen::artifact::isa;
use llmcc_codegen::sealed::{Damage, Sealed};
use llmcc_ir::target::{Family, TargetSpec};
use said::Said;
use serde_json::{Value, json};
use std::fmt::Write;

/// Checks the hashes of all bytes, then computes with each version that this machine runs; lists
/// the ones it does not.
///
/// # Errors
/// [`Error::Failed`] naming the difference.
pub fn run(args: &VerifyArgs) -> Result<(), Error> {
    let stamp = Stamp::of(&args.artifact);
    check(args).map_err(|e| stamp.explain(e))
}

/// Prints the text of a finding, unless a document is to be printed at the end; its facts.
fn say(args: &VerifyArgs, said: Said) -> Result<Value, Error> {
    if !args.json {
        super::print(&said.text)?;
    }
    Ok(said.facts)
}

fn check(args: &VerifyArgs) -> Result<(), Error> {
    let (seed, mut document) = hashes(args)?;
    if args.no_run {
        return if args.json { crate::json::print(&document) } else { Ok(()) };
    }
    let manifest = Manifest::of(&args.artifact)?;
    let kept = golden_vectors(&manifest.golden);
    if let Err(why) = &kept {
        eprintln!(
            "warning: {}: no golden vectors to compare with ({why}). Its hashes only prove that nothing changed \
                since they were computed; compare the root with the one printed when it was compiled (--root)",
            args.artifact.display()
        );
    }
    let (mut checked_versions, mut unchecked) = (vec![], vec![]);
    // A processor runs the versions for all levels up to its own, each as a processor of that level
    // would; a GPU the best one.
    let known = manifest.versions.iter().filter(|v| v.spec().is_some());
    let (cpus, gpus): (Vec<&Version>, Vec<_>) =
        known.partition(|v| v.spec().is_some_and(|t| t.family() == Family::Cpu));
    let groups = cpus.into_iter().map(|v| vec![v]).chain((!gpus.is_empty()).then_some(gpus));
    for mine in groups {
        let Some(device) = mine.first().and_then(|v| v.spec()).map(golden::device_of) else { continue };
        match answer(args, seed, device)? {
            Answer::Refused(why) => unchecked.push((mine, why)),
            Answer::Ran(ran) => {
                let (ours, others): (Vec<_>, Vec<_>) =
                    mine.into_iter().partition(|v| v.spec().is_some_and(|t| isa(t) == ran.isa));
                let Some(version) = ours.first() else {
                    return Err(broken(args, "its manifest has no entry for the version that runs here".into()));
                };
                let checked = Checked { args, manifest: &manifest, version, ran: &ran };
                let golden = say(args, checked.golden(&kept, seed)?)?;
                let computation = say(args, checked.computation()?)?;
                checked_versions.push(json!({
                    "target": version.target, "device": ran.device, "golden": golden, "computation": computation,
                }));
                unchecked.push((others, format!("this machine runs the version for {}", version.target)));
            }
        }
    }
    let each: Vec<(&Version, &String)> =
        unchecked.iter().flat_map(|(all, why)| all.iter().map(move |v| (*v, why))).collect();
    let text = each.iter().map(|(v, why)| format!("not checked  {}: {why}\n", v.target)).collect();
    let facts = each.iter().map(|(v, why)| json!({ "target": v.target, "why": why })).collect();
    document["not_checked"] = say(args, Said { text, facts })?;
    if let Some((text, reference)) = args.certificate.as_ref().zip(args.reference.as_ref()) {
        document["certificate"] = say(args, certificate::measure(args, &manifest, text, reference)?)?;
    }
    document["checked"] = checked_versions.into();
    if args.json {
        crate::json::print(&document)?;
    }
    Ok(())
}

fn broken(args: &VerifyArgs, message: String) -> Error {
    Error::Artifact { path: args.artifact.clone(), message }
}

/// Compares all bytes with their hashes, and the root with the one asked for; the seed of the
/// golden steps, and the beginning of the document.
fn hashes(args: &VerifyArgs) -> Result<(u64, Value), Error> {
    let sealed = Sealed::open(&args.artifact)?;
    let root = hex(&sealed.root());
    if args.root.as_ref().is_some_and(|want| *want != root) {
        return Err(Error::Failed(format!(
            "{}: its root is {root}, not the given one: it is another artifact, or was altered together with \
                its hashes",
            args.artifact.display()
        )));
    }
    if let Some(key) = &args.key {
        signature::check_root(&args.artifact, &sealed.root(), &signature::public(key)?)?;
        signature::check_covered(&args.artifact, &sealed)?;
    }
    sealed.check_side_file()?;
    let threads = match args.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n as usize,
    };
    let bad = sealed.check(|_| true, threads)?;
    if !bad.is_empty() {
        return Err(Error::Failed(altered(args, &sealed, &bad)));
    }
    let parts = say(args, sizes(&sealed))?;
    let compared = if args.root.is_some() { ", the given one" } else { "" };
    let facts = json!({
        "artifact": args.artifact.display().to_string(),
        "root": root,
        "root_compared": args.root.is_some(),
        "signature_checked": args.key.is_some(),
        "weights_hashed": !sealed.weights_unhashed(),
        "unchanged_bytes": parts,
    });
    let signed = if args.key.is_some() { "signature    right, with the given key\n" } else { "" };
    let document = say(args, Said { text: format!("root         {root}{compared}\n{signed}"), facts })?;
    let code = sealed.parts.iter().find(|p| p.kind == part::CODE).map_or(Hash::default(), |p| p.hash);
    let weights = if sealed.weights_unhashed() { Hash::default() } else { tree::weights(&sealed.parts) };
    Ok((golden::seed((code, weights)), document))
}

/// A line for each kind of part: how many bytes are as they were.
fn sizes(sealed: &Sealed) -> Said {
    let mut kinds: Vec<(u32, u64)> = vec![];
    for p in &sealed.parts {
        match kinds.iter_mut().find(|(kind, _)| *kind == p.kind) {
            Some((_, bytes)) => *bytes += p.len,
            None => kinds.push((p.kind, p.len)),
        }
    }
    kinds.retain(|(kind, _)| !matches!(*kind, part::PADDING | part::IMAGE | part::LABEL));
    let (mut lines, mut facts) = (String::new(), json!({}));
    for (kind, bytes) in kinds {
        facts[part::name(kind)] = bytes.into();
        let _ = writeln!(lines, "{:<12} {bytes} bytes, unchanged", part::name(kind));
    }
    if sealed.weights_unhashed() {
        let _ = writeln!(
            lines,
            "weights      not checked: {} was made by someone else (--weights absent)",
            sealed.weights_path().display()
        );
    }
    Said { text: lines, facts }
}

/// Says which bytes have changed.
fn altered(args: &VerifyArgs, sealed: &Sealed, bad: &[Damage]) -> String {
    const MOST: usize = 20;
    // If it is sound: it names the weights.
    let manifest = sealed.bytes(part::MANIFEST).ok().and_then(|m| Manifest::parse(&m).ok()).unwrap_or_default();
    let mut s = format!("{}: changed since it was compiled; copy or compile it again", args.artifact.display());
    for d in bad.iter().take(MOST) {
        let file = if d.part.file == tree::SIDE { sealed.weights_path() } else { args.artifact.clone() };
        let _ =
            write!(s, "\n  {}: bytes {} to {} of {}", called(&d.part, sealed, &manifest), d.from, d.to, file.display());
    }
    if bad.len() > MOST {
        let _ = write!(s, "\n  and {} more places", bad.len() - MOST);
    }
    s
}

/// Name of a part; of weights, with the tensor.
fn called(p: &PartDesc, sealed: &Sealed, manifest: &Manifest) -> String {
    if p.kind != part::WEIGHTS {
        return part::name(p.kind).into();
    }
    let start = sealed.parts.iter().find(|p| p.kind == part::WEIGHTS).map_or(0, |p| p.off);
    let tensor = manifest.weights.tensors.iter().find(|t| t.offset == p.off - start);
    tensor.map_or("weights of a further version".into(), |t| format!("weights, {}", t.name))
}

/// The golden vectors in the manifest, or why there are none to compare with.
fn golden_vectors(kept: &GoldenRecord) -> Result<&Golden, String> {
    match kept {
        GoldenRecord::Absent { absent } => Err(format!("none: {absent}")),
        GoldenRecord::Vectors(kept) if kept.scheme == golden::SCHEME => Ok(kept),
        GoldenRecord::Vectors(kept) => {
            Err(format!("not compared: they were made by scheme {}, this llmcc knows {}", kept.scheme, golden::SCHEME))
        }
    }
}

/// The results of the version for a device.
fn answer(args: &VerifyArgs, seed: u64, device: &str) -> Result<Answer, Error> {
    let program = program::this()?;
    golden::compute_in_child(&program, &args.artifact, seed, device, args.threads, true)
        .map_err(|e| broken(args, format!("its version for {device} does not run here ({e})")))
}

/// A version that computed here.
struct Checked<'a> {
    args: &'a VerifyArgs,
    manifest: &'a Manifest,
    version: &'a Version,
    ran: &'a Ran,
}

impl Checked<'_> {
    /// The version and where it ran.
    fn place(&self) -> String {
        match self.version.spec().map(TargetSpec::family) {
            Some(Family::Nvidia) => format!("{} on {}", self.version.target, self.ran.device),
            _ => self.version.target.clone(),
        }
    }

    /// Compares with the results at compile time: bit for bit if this version computed them or one
    /// that rounds the same way.
    fn golden(&self, kept: &Result<&Golden, String>, seed: u64) -> Result<Said, Error> {
        let kept = match kept {
            Ok(kept) => kept,
            Err(why) => {
                return Ok(Said { text: format!("golden       {why}\n"), facts: json!({ "not_compared": why }) });
            }
        };
        let ran = self.ran;
        let tokens: usize = ran.steps.iter().map(|s| s.tokens).sum();
        let said = |what: String, d: Distance| {
            let (of, steps) = (count(tokens, "token"), count(ran.steps.len(), "step"));
            Ok(Said {
                text: format!("golden       {}: {of} in {steps} give {what}\n", self.place()),
                facts: json!({
                    "tokens": tokens, "steps": ran.steps.len(), "computed_by": kept.target,
                    "same_bits": d.same_bits, "distance": d.relative,
                }),
            })
        };
        match Distance::between(&kept.steps, &ran.steps) {
            Some(d) if d.same_bits => said("the same logits as when it was compiled, bit for bit".into(), d),
            Some(d) if d.finite && d.relative <= ANOTHER_ROUNDING && !self.rounds_as(&kept.target) => {
                let what = format!(
                    "the same logits as when it was compiled, except for rounding: the version for {}, which rounds \
                        elsewhere, computed them, and the distance is {}",
                    kept.target,
                    percent(d.relative)
                );
                said(what, d)
            }
            _ => {
                let steps = golden::steps(seed, &ran.sizes);
                Err(Error::Failed(format!(
                    "{}: it computes other results than when it was compiled: {}; it was altered, or this \
                        machine computes differently",
                    self.args.artifact.display(),
                    golden::difference(&kept.steps, &ran.steps, &steps).unwrap_or_default()
                )))
            }
        }
    }

    /// Whether this version gives the bits of that for `target`: both for processors, with the same
    /// approximations.
    fn rounds_as(&self, target: &str) -> bool {
        let of_cpu = |v: &&Version| v.spec().is_some_and(|t| t.family() == Family::Cpu);
        let Some(other) = self.manifest.versions.iter().find(|v| v.target == target).filter(of_cpu) else {
            return false;
        };
        let approximations = |v: &Version| (v.activations.clone(), v.lossy.clone(), v.weights, v.read_per_step);
        of_cpu(&self.version) && approximations(self.version) == approximations(other)
    }

    /// The same tokens in one step and one by one must give the same finite logits; on a GPU, whose
    /// kernels for few and many tokens sum in another order unless they are invariant, nearly. On a
    /// processor with an order of sums of its own they must in that, too, and be near those in
    /// portable order.
    fn computation(&self) -> Result<Said, Error> {
        let Some(batching) = &self.ran.batching else {
            return Ok(Said { text: String::new(), facts: Value::Null });
        };
        let distance = |d: Distance| json!({ "same_bits": d.same_bits, "distance": d.relative });
        let own = batching
            .own
            .map(|own| json!({ "batched": distance(own.apart), "from_portable_order": distance(own.from_portable) }));
        let facts = json!({ "tokens": batching.tokens, "batched": distance(batching.apart), "own_order_of_sums": own });
        Ok(Said { text: self.computed(batching)?, facts })
    }

    /// The same as text.
    fn computed(&self, batching: &Batching) -> Result<String, Error> {
        let n = batching.tokens;
        if self.version.spec().is_some_and(|t| t.family() == Family::Nvidia) {
            let allowed = if self.manifest.options.invariant { 0.0 } else { self.rounding() };
            return Ok(self.batches(n, batching.apart, allowed, "")? + "\n");
        }
        let Some(own) = batching.own else {
            let line = self.batches(n, batching.apart, 0.0, "")?;
            return Ok(format!("{line}; this processor's own order of sums gives the same\n"));
        };
        let portable = self.batches(n, batching.apart, 0.0, " in the portable order of sums")?;
        let ours = self.batches(n, own.apart, 0.0, " in this processor's own order of sums")?;
        let (apart, allowed) = (percent(own.from_portable.relative), percent(self.rounding()));
        if own.from_portable.relative > self.rounding() {
            return self.failed(&format!(
                "logits in this processor's own order of sums differ by {apart} from logits in the portable \
                    order (`--portable`); rounding explains at most {allowed}; please report this"
            ));
        }
        Ok(format!("{portable}\n{ours}; they differ by {apart} from the portable order\n"))
    }

    /// How far two of this version's results may be apart, either being as far from exact as its
    /// arithmetic allows.
    fn rounding(&self) -> f64 {
        2.0 * self.version.tolerance
    }

    fn failed(&self, what: &str) -> Result<String, Error> {
        Err(Error::Failed(format!("{}: {}: {what}", self.args.artifact.display(), self.place())))
    }

    /// Describes a difference `apart` between logits of `n` tokens in one step and one by one: a
    /// line without its end.
    fn batches(&self, n: usize, apart: Distance, allowed: f64, order: &str) -> Result<String, Error> {
        if !apart.finite {
            return self.failed(&format!("logits of {n} tokens are not all finite{order}"));
        }
        let said = |how: &str| {
            Ok(format!(
                "computation  {}: {n} tokens in one step equal the same tokens one by one{order}{how}",
                self.place()
            ))
        };
        if apart.same_bits {
            return said(", bit for bit");
        }
        if apart.relative > allowed {
            let (apart, allowed) = (percent(apart.relative), percent(allowed));
            return self.failed(&format!(
                "logits depend on how {n} tokens were batched{order}: they differ by {apart}; rounding explains \
                    at most {allowed}; please report this"
            ));
        }
        said(&format!(" except for rounding: they differ by {}", percent(apart.relative)))
    }
}

/// Largest distance of logits that another rounding of the same model explains; logits of unrelated
/// models are some √2 apart.
const ANOTHER_ROUNDING: f64 = 0.5;

fn percent(x: f64) -> String {
    if x == 0.0 {
        return "0 %".into();
    }
    if x < 1e-3 { format!("{:.0e} %", x * 100.0) } else { format!("{:.1} %", x * 100.0) }
}

/// `llmcc golden`: the other end of [`golden::compute_in_child`].
///
/// # Errors
/// Not an artifact, or it fails.
pub fn golden(args: &GoldenArgs) -> Result<(), Error> {
    let answer = Answer::here(&args.artifact, args.seed, args.threads, args.batching)?;
    super::print(&serde_json::to_string(&answer).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{Computed, OwnOrder, Shape, Sizes};
    use crate::manifest::Options;

    fn computed(logit: f32) -> Vec<Computed> {
        let bits = |v: f32| format!("{:08x}", v.to_bits());
        vec![Computed { tokens: 2, sha256: bits(logit), rows: vec![bits(1.0) + &bits(logit)] }]
    }

    /// Describes a version that computes `logit` beside 1, where the golden vectors have 2, from
    /// the version for `by`.
    fn said(of: &str, activations: &str, by: &str, logit: f32, apart: Option<f64>) -> Result<(String, String), String> {
        let batching = apart.map(|relative| Batching { tokens: 24, apart: distance(relative), own: None });
        said_of((of, false), activations, by, logit, batching)
    }

    /// 0: the same bits.
    fn distance(relative: f64) -> Distance {
        Distance { relative, finite: true, same_bits: relative == 0.0 }
    }

    fn said_of(
        (of, invariant): (&str, bool),
        activations: &str,
        by: &str,
        logit: f32,
        batching: Option<Batching>,
    ) -> Result<(String, String), String> {
        let version = |target: &str, activations: &str| Version {
            target: target.into(),
            activations: activations.into(),
            tolerance: 0.1,
            ..Version::default()
        };
        let versions = vec![version(by, "f32"), version(of, activations)];
        let options = Options { invariant, ..Options::default() };
        let manifest = Manifest { versions, options, ..Manifest::default() };
        let ran = Ran {
            isa: 0,
            device: "a machine".into(),
            sizes: Sizes { vocab: 2, max_context: 8, entries: vec![Shape { columns: 2, whole: false, context: None }] },
            steps: computed(logit),
            batching,
        };
        let args = VerifyArgs {
            artifact: "m.so".into(),
            root: None,
            key: None,
            no_run: false,
            certificate: None,
            reference: None,
            threads: 1,
            json: false,
        };
        let checked = Checked { args: &args, manifest: &manifest, version: &manifest.versions[1], ran: &ran };
        let kept = Golden { scheme: golden::SCHEME, target: by.into(), steps: computed(2.0) };
        let golden = checked.golden(&Ok(&kept), 1).map_err(|e| e.to_string())?;
        Ok((golden.text, checked.computation().map_err(|e| e.to_string())?.text))
    }

    #[test]
    fn versions_that_round_alike_give_the_same_bits() {
        assert!(said("x86-64-v3", "f32", "x86-64-v4", 2.0, None).expect("the same").0.contains("bit for bit"));
        let wrong = said("x86-64-v3", "f32", "x86-64-v4", 2.001, None).expect_err("the same approximations");
        assert!(wrong.contains("logit 1") && wrong.contains("when compiled it was 2.0"), "{wrong}");
    }

    #[test]
    fn versions_that_round_elsewhere_are_near() {
        let (near, _) = said("x86-64-v3", "int8", "x86-64-v4", 2.1, None).expect("other activations");
        assert!(
            near.contains("except for rounding: the version for x86-64-v4, which rounds elsewhere, computed them, and the distance is 4.5 %"),
            "{near}"
        );
        assert!(said("sm90", "f32", "x86-64-v4", 2.1, None).expect("a GPU").0.contains("sm90 on a machine: 2 tokens"));
        for another in [-2.0, 9.0, f32::NAN] {
            assert!(said("sm90", "f32", "x86-64-v4", another, None).is_err(), "{another}");
        }
    }

    #[test]
    fn processors_are_checked_in_their_own_order_of_sums_too() {
        let said = |portable: f64, own: Option<(f64, f64)>| {
            let own = own.map(|(apart, from_portable)| OwnOrder {
                apart: distance(apart),
                from_portable: distance(from_portable),
            });
            let batching = Batching { tokens: 24, apart: distance(portable), own };
            let of = ("x86-64-v4", false);
            said_of(of, "bf16", "x86-64-v4", 2.0, Some(batching)).map(|(_, computation)| computation)
        };
        let one = said(0.0, None).expect("one order");
        assert!(one.ends_with("one by one, bit for bit; this processor's own order of sums gives the same\n"), "{one}");
        let two = said(0.0, Some((0.0, 0.002))).expect("two orders");
        assert!(two.contains("in the portable order of sums, bit for bit\ncomputation  x86-64-v4: 24 tokens"), "{two}");
        assert!(
            two.ends_with(
                "in this processor's own order of sums, bit for bit; they differ by 0.2 % from the portable order\n"
            ),
            "{two}"
        );
        for (portable, own, says) in [
            (1e-6, (0.0, 0.002), "batched in the portable order of sums"),
            (0.0, (1e-6, 0.002), "batched in this processor's own order of sums"),
            (0.0, (0.0, 0.3), "differ by 30.0 % from logits in the portable order"),
        ] {
            let wrong = said(portable, Some(own)).expect_err("too far apart");
            assert!(wrong.contains(says), "{wrong}");
        }
    }

    #[test]
    fn batches_change_the_order_of_sums_on_gpus_only() {
        assert!(
            said("sm90", "f32", "x86-64-v4", 2.0, Some(0.01))
                .expect("within the tolerance")
                .1
                .contains("except for rounding: they differ by 1.0 %")
        );
        for (target, apart) in [("sm90", 0.3), ("x86-64-v3", 1e-6)] {
            let wrong = said(target, "f32", "x86-64-v4", 2.0, Some(apart)).expect_err("too far apart");
            assert!(wrong.contains("depend on how 24 tokens were batched"), "{wrong}");
        }
        let invariant = |relative| {
            let batching = Batching { tokens: 24, apart: distance(relative), own: None };
            said_of(("sm90", true), "f32", "x86-64-v4", 2.0, Some(batching)).map(|(_, computation)| computation)
        };
        assert!(invariant(0.0).expect("the same").contains("one by one, bit for bit"));
        let wrong = invariant(1e-7).expect_err("other bits");
        assert!(wrong.contains("rounding explains at most 0 %"), "{wrong}");
    }
}
