//! `llmcc verify`: is the artifact what the compiler wrote, and does it compute here?

use crate::Error;
use crate::args::{GoldenArgs, VerifyArgs};
use crate::golden::{self, Answer, Distance, Golden, Ran};
use crate::loaded::{Part, manifest_of, segments};
use crate::manifest::{self, Version, hex};
use llmcc_codegen::artifact::isa;
use llmcc_ir::target::{Family, TargetSpec};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::io::{Read, Seek, SeekFrom};

/// Checks hashes of code and weights, then computes with each version that this machine runs; says which it does not.
///
/// # Errors
/// [`Error::Failed`] saying what differs.
pub fn run(args: &VerifyArgs) -> Result<(), Error> {
    let manifest = manifest_of(&args.artifact)?;
    let seed = hashes(args, &manifest)?;
    let kept = golden_vectors(args, &manifest["golden"])?;
    let versions = manifest::versions(&manifest);
    let mut unchecked = vec![];
    // A processor runs the versions for all levels up to its own, each as a processor of that level would; a GPU the best one.
    let (cpus, gpus): (Vec<&Version<'_>>, Vec<_>) =
        versions.iter().filter(|v| v.spec.is_some()).partition(|v| v.spec.is_some_and(|t| t.family() == Family::Cpu));
    let groups = cpus.into_iter().map(|v| vec![v]).chain((!gpus.is_empty()).then_some(gpus));
    for mine in groups {
        let Some(device) = mine.first().and_then(|v| v.spec).map(golden::device_of) else { continue };
        match answer(args, seed, device)? {
            Answer::Refused(why) => unchecked.push((mine, why)),
            Answer::Ran(ran) => {
                let (ours, others): (Vec<_>, Vec<_>) = mine.into_iter().partition(|v| v.spec.is_some_and(|t| isa(t) == ran.isa));
                let Some(version) = ours.first() else {
                    return Err(broken(args, "its manifest does not know the version that runs here".into()));
                };
                let checked = Checked { args, manifest: &manifest, version, ran: &ran };
                super::print(&checked.golden(&kept, seed)?)?;
                super::print(&checked.computation()?)?;
                unchecked.push((others, format!("this machine runs the version for {}", version.target)));
            }
        }
    }
    let line = |(v, why): (&&Version<'_>, &String)| format!("not checked  {}: {why}\n", v.target);
    let lines: String = unchecked.iter().flat_map(|(all, why)| all.iter().map(move |v| line((v, why)))).collect();
    super::print(&lines)
}

fn broken(args: &VerifyArgs, message: String) -> Error {
    Error::Artifact { path: args.artifact.clone(), message }
}

/// Compares code and weights with their hashes in the manifest; the seed of the golden steps.
fn hashes(args: &VerifyArgs, manifest: &Value) -> Result<u64, Error> {
    let parts = segments(&args.artifact)?;
    let mut hashes = vec![];
    for (name, part) in [("code", &parts.code), ("weights", &parts.weights)] {
        let want = manifest[name]["sha256"].as_str().unwrap_or_default();
        let got = sha256(part)?;
        if got != want {
            return Err(Error::Failed(format!(
                "{}: {name}: not what the compiler wrote (SHA-256 {got}, manifest says {want}); copy or compile it again",
                args.artifact.display()
            )));
        }
        super::print(&format!("{name:<12} {} bytes, SHA-256 as in the manifest\n", part.len))?;
        hashes.push(got);
    }
    Ok(golden::seed(&hashes[0], &hashes[1]))
}

/// The golden vectors in the manifest, or why there are none to compare with.
fn golden_vectors(args: &VerifyArgs, kept: &Value) -> Result<Result<Golden, String>, Error> {
    if let Some(why) = kept["absent"].as_str() {
        return Ok(Err(format!("none: {why}")));
    }
    let kept: Golden = serde_json::from_value(kept.clone()).map_err(|e| broken(args, format!("its golden vectors are unreadable: {e}")))?;
    Ok(match kept.scheme {
        golden::SCHEME => Ok(kept),
        other => Err(format!("not compared: made by scheme {other}, this llmcc knows {}", golden::SCHEME)),
    })
}

/// What the version for a device computes.
fn answer(args: &VerifyArgs, seed: u64, device: &str) -> Result<Answer, Error> {
    let program = std::env::current_exe().map_err(|e| Error::io("find", "the llmcc program", e))?;
    golden::compute_in_child(&program, &args.artifact, seed, device, args.threads, true)
        .map_err(|e| broken(args, format!("its version for {device} does not run here ({e})")))
}

/// A version that computed here.
struct Checked<'a> {
    args: &'a VerifyArgs,
    manifest: &'a Value,
    version: &'a Version<'a>,
    ran: &'a Ran,
}

impl Checked<'_> {
    /// The version and where it ran.
    fn place(&self) -> String {
        match self.version.spec.map(TargetSpec::family) {
            Some(Family::Gpu) => format!("{} on {}", self.version.target, self.ran.device),
            _ => self.version.target.to_owned(),
        }
    }

    /// Compares with what was computed at compile time: bit for bit if by this version or one that rounds as it does.
    fn golden(&self, kept: &Result<Golden, String>, seed: u64) -> Result<String, Error> {
        let kept = match kept {
            Ok(kept) => kept,
            Err(why) => return Ok(format!("golden       {why}\n")),
        };
        let ran = self.ran;
        let tokens: usize = ran.steps.iter().map(|s| s.tokens).sum();
        let said = |what: String| Ok(format!("golden       {}: {tokens} tokens in {} steps give {what}\n", self.place(), ran.steps.len()));
        match Distance::between(&kept.steps, &ran.steps) {
            Some(d) if d.same_bits => said("the logits of when it was compiled, bit for bit".into()),
            Some(d) if d.finite && d.relative <= ANOTHER_ROUNDING && !self.rounds_as(&kept.target) => said(format!(
                "the logits of when it was compiled but for rounding: they were computed by the version for {}, which rounds elsewhere, and are {} apart",
                kept.target,
                percent(d.relative)
            )),
            _ => {
                let steps = golden::steps(seed, ran.vocab, ran.max_context);
                Err(Error::Failed(format!(
                    "{}: it does not compute what it did when it was compiled: {}; it was altered, or this machine computes differently",
                    self.args.artifact.display(),
                    golden::difference(&kept.steps, &ran.steps, ran.vocab, &steps).unwrap_or_default()
                )))
            }
        }
    }

    /// Whether this version gives the bits of that for `target`: both for processors, with the same approximations.
    fn rounds_as(&self, target: &str) -> bool {
        let of_cpu = |v: &&Version<'_>| v.spec.is_some_and(|t| t.family() == Family::Cpu);
        let versions = manifest::versions(self.manifest);
        let Some(other) = versions.iter().find(|v| v.target == target).filter(of_cpu) else { return false };
        let same = |key: &str| self.version.facts[key] == other.facts[key];
        of_cpu(&self.version) && ["activations", "lossy", "weights", "read_per_step"].iter().all(|key| same(key))
    }

    /// The same tokens in one step and one by one must give the same finite logits; on a GPU, whose kernels for few and many tokens sum in another order, nearly.
    /// On a processor with an order of sums of its own they must in that, too, and be near those in portable order.
    fn computation(&self) -> Result<String, Error> {
        let Some(batching) = &self.ran.batching else { return Ok(String::new()) };
        let n = batching.tokens;
        if self.version.spec.is_some_and(|t| t.family() == Family::Gpu) {
            return Ok(self.batches(n, batching.apart, self.rounding(), "")? + "\n");
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
                "logits in this processor's own order of sums are {apart} apart from those in the portable one (`--portable`), {allowed} may be rounding; please report this"
            ));
        }
        Ok(format!("{portable}\n{ours}; from those in the portable order they are {apart} apart\n"))
    }

    /// How far two of this version's results may be apart, either being as far from exact as its arithmetic allows.
    fn rounding(&self) -> f64 {
        2.0 * self.version.facts["tolerance"].as_f64().unwrap_or(0.0)
    }

    fn failed(&self, what: &str) -> Result<String, Error> {
        Err(Error::Failed(format!("{}: {}: {what}", self.args.artifact.display(), self.place())))
    }

    /// What is said of logits of `n` tokens in one step and one by one that are `apart`: a line without its end.
    fn batches(&self, n: usize, apart: Distance, allowed: f64, order: &str) -> Result<String, Error> {
        if !apart.finite {
            return self.failed(&format!("logits of {n} tokens are not all finite{order}"));
        }
        let said =
            |how: &str| Ok(format!("computation  {}: {n} tokens in one step equal the same tokens one by one{order}{how}", self.place()));
        if apart.same_bits {
            return said(", bit for bit");
        }
        if apart.relative > allowed {
            let (apart, allowed) = (percent(apart.relative), percent(allowed));
            return self.failed(&format!(
                "logits depend on how {n} tokens were batched{order}: they are {apart} apart, {allowed} may be rounding; please report this"
            ));
        }
        said(&format!(" but for rounding: {} apart", percent(apart.relative)))
    }
}

/// Largest distance of logits that may come of another rounding of the same model; those of unrelated models are some √2 apart.
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

/// SHA-256 of a part of a file, read in pieces, hex.
fn sha256(part: &Part) -> Result<String, Error> {
    let fail = |e| Error::io("read", &part.path, e);
    let mut file = std::fs::File::open(&part.path).map_err(fail)?;
    file.seek(SeekFrom::Start(part.offset)).map_err(fail)?;
    let mut hash = Sha256::new();
    let mut left = part.len;
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        let n = buffer.len().min(left.try_into().unwrap_or(usize::MAX));
        file.read_exact(&mut buffer[..n]).map_err(fail)?;
        hash.update(&buffer[..n]);
        left -= n as u64;
    }
    Ok(hex(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{Batching, Computed, OwnOrder};
    use serde_json::json;

    fn computed(logit: f32) -> Vec<Computed> {
        let bits = |v: f32| format!("{:08x}", v.to_bits());
        vec![Computed { tokens: 2, sha256: bits(logit), rows: vec![bits(1.0) + &bits(logit)] }]
    }

    /// What is said of a version that computes `logit` beside 1, by golden vectors with 2 from the version for `by`.
    fn said(of: &str, activations: &str, by: &str, logit: f32, apart: Option<f64>) -> Result<(String, String), String> {
        let batching = apart.map(|relative| Batching { tokens: 24, apart: distance(relative), own: None });
        said_of(of, activations, by, logit, batching)
    }

    /// 0: the same bits.
    fn distance(relative: f64) -> Distance {
        Distance { relative, finite: true, same_bits: relative == 0.0 }
    }

    fn said_of(of: &str, activations: &str, by: &str, logit: f32, batching: Option<Batching>) -> Result<(String, String), String> {
        let version =
            |target: &str, activations: &str| json!({ "target": target, "activations": activations, "lossy": [], "tolerance": 0.1 });
        let manifest = json!({ "versions": [version(by, "f32"), version(of, activations)] });
        let versions = manifest::versions(&manifest);
        let ran = Ran { isa: 0, device: "a machine".into(), vocab: 2, max_context: 8, steps: computed(logit), batching };
        let args = VerifyArgs { artifact: "m.so".into(), threads: 1 };
        let checked = Checked { args: &args, manifest: &manifest, version: &versions[1], ran: &ran };
        let kept = Ok(Golden { scheme: golden::SCHEME, target: by.into(), steps: computed(2.0) });
        let golden = checked.golden(&kept, 1).map_err(|e| e.to_string())?;
        Ok((golden, checked.computation().map_err(|e| e.to_string())?))
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
        assert!(near.contains("computed by the version for x86-64-v4, which rounds elsewhere, and are 4.5 % apart"), "{near}");
        assert!(said("sm90", "f32", "x86-64-v4", 2.1, None).expect("a GPU").0.contains("sm90 on a machine: 2 tokens"));
        for another in [-2.0, 9.0, f32::NAN] {
            assert!(said("sm90", "f32", "x86-64-v4", another, None).is_err(), "{another}");
        }
    }

    #[test]
    fn processors_are_checked_in_their_own_order_of_sums_too() {
        let said = |portable: f64, own: Option<(f64, f64)>| {
            let own = own.map(|(apart, from_portable)| OwnOrder { apart: distance(apart), from_portable: distance(from_portable) });
            let batching = Batching { tokens: 24, apart: distance(portable), own };
            said_of("x86-64-v4", "bf16", "x86-64-v4", 2.0, Some(batching)).map(|(_, computation)| computation)
        };
        let one = said(0.0, None).expect("one order");
        assert!(one.ends_with("one by one, bit for bit; this processor's own order of sums gives the same\n"), "{one}");
        let two = said(0.0, Some((0.0, 0.002))).expect("two orders");
        assert!(two.contains("in the portable order of sums, bit for bit\ncomputation  x86-64-v4: 24 tokens"), "{two}");
        assert!(
            two.ends_with("in this processor's own order of sums, bit for bit; from those in the portable order they are 0.2 % apart\n"),
            "{two}"
        );
        for (portable, own, says) in [
            (1e-6, (0.0, 0.002), "batched in the portable order of sums"),
            (0.0, (1e-6, 0.002), "batched in this processor's own order of sums"),
            (0.0, (0.0, 0.3), "are 30.0 % apart from those in the portable one"),
        ] {
            let wrong = said(portable, Some(own)).expect_err("too far apart");
            assert!(wrong.contains(says), "{wrong}");
        }
    }

    #[test]
    fn batches_change_the_order_of_sums_on_gpus_only() {
        assert!(
            said("sm90", "f32", "x86-64-v4", 2.0, Some(0.01)).expect("within the tolerance").1.contains("but for rounding: 1.0 % apart")
        );
        for (target, apart) in [("sm90", 0.3), ("x86-64-v3", 1e-6)] {
            let wrong = said(target, "f32", "x86-64-v4", 2.0, Some(apart)).expect_err("too far apart");
            assert!(wrong.contains("depend on how 24 tokens were batched"), "{wrong}");
        }
    }
}
