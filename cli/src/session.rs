//! The compiler driver: checkpoint → graph → plan → machine code → artifact.
//!
//! [`crate::options`] says what to compile, [`lower`] makes plans and machine code, [`finish`]
//! packs the weights and writes the artifact.

use crate::Error;
use crate::certificate;
use crate::checked::Check;
use crate::digest::{SourceFile, hash_sources};
use crate::golden::{self, Outcome};
use crate::lowered::{Origin, Source};
use crate::manifest::{Facts, Manifest};
use crate::recipe;
use crate::runtimes::{self, Runtime};
use crate::shared::SharedWeights;
use llmcc_abi::tree::Hash;
use llmcc_codegen::Backend;
use llmcc_codegen::artifact::{self, Texts};
use llmcc_codegen::link::{Linker, Pending, WeightsPlace};
use llmcc_ir::threads::beside;
use llmcc_passes::measure::Measured;
use llmcc_passes::pack::{PackError, PackReport, WeightSource};
use std::path::{Path, PathBuf};

pub use crate::lowered::{Lifted, Lowered, Phases, Version, lift, lower};
pub use crate::options::{Choose, CompileOptions, check_llvm, find_target, find_targets, invariant};

/// A finished artifact.
pub struct Finished {
    /// Bytes of the artifact file.
    pub bytes: u64,
    /// The runtime in it, and its bytes.
    pub runtime: (Runtime, usize),
    /// Bytes of generated code.
    pub code_bytes: usize,
    /// Measurements from packing.
    pub packed: PackReport,
    /// Golden vectors.
    pub golden: Outcome,
    /// The check of a calibrated artifact, which follows.
    pub check: Option<Check>,
    /// Root of the hashes of all bytes ([`llmcc_abi::tree`]).
    pub root: Hash,
    /// Times.
    pub phases: Phases,
}

/// Runtime, code and weights in a file without a name yet.
struct Linked {
    linker: Linker,
    code: artifact::CodeSegment,
    runtime: (Runtime, usize),
    shared: SharedWeights,
    packed: Packed,
}

/// Writes runtime and code, and packs the weights.
fn link(
    l: &Lowered,
    options: &CompileOptions,
    out: &Path,
    progress: &mut dyn FnMut(u64, u64),
    phases: &mut Phases,
) -> Result<Linked, Error> {
    // The reader of tokenizers also reads the files of adapters, and defaults of generations.
    let defaults = ["generation", "starts"].iter().any(|key| l.texts.text_config.get(key).is_some());
    let media = l.texts.text_config.get("media").is_some();
    let kind = match l.texts.tokenizer_json.is_some() || l.adapters.is_some() || defaults {
        _ if media => Runtime::Media,
        true => Runtime::Full,
        false => Runtime::Core,
    };
    let runtime = runtimes::find(runtimes::machine(&options.targets), kind)?;
    let code = artifact::layout_code(&l.versions.iter().map(|v| &v.objects[..]).collect::<Vec<_>>());
    let shared = SharedWeights::new(l.versions.iter().map(|v| (&v.compiled.plan, v.target)));
    let expected = shared.bytes().iter().sum();
    let mut linker = Linker::start(out, options.soname.as_deref(), &runtime, &code.bytes, options.place, expected)?;
    let packed = match options.place {
        WeightsPlace::Absent => leave_out(&shared, &mut linker),
        _ => phases.time("pack weights", || pack_all(l, options, &shared, &mut linker, progress))?,
    };
    // (With a budget, the loss is part of it.)
    if !options.has_budget() {
        shared.lists.iter().zip(&packed.reports).try_for_each(|(plan, report)| report.check_scales(plan))?;
    }
    Ok(Linked { linker, code, runtime: (kind, runtime.len()), shared, packed })
}

/// As [`link`]; the forms were chosen by samples, so where the packed weights break the error
/// budget, they are chosen again, by the measured errors.
fn link_within_budget(
    l: &mut Lowered,
    options: &CompileOptions,
    backend: &dyn Backend,
    (out, progress): (&Path, &mut dyn FnMut(u64, u64)),
    phases: &mut Phases,
) -> Result<Linked, Error> {
    let whole = match link(l, options, out, progress, phases) {
        Ok(linked) => match certificate::excess(l, options, &linked.shared, &linked.packed.reports) {
            Some(whole) => whole,
            None => return Ok(linked),
        },
        // The samples had no value that is too large for the form that was chosen.
        Err(Error::Pack(e)) if e.too_large() && options.choose.error_budget.is_some() => Measured::new(),
        Err(e) => return Err(e),
    };
    l.choose_again(options, backend, whole, phases)?;
    let linked = link(l, options, out, progress, phases)?;
    match certificate::excess(l, options, &linked.shared, &linked.packed.reports) {
        None => Ok(linked),
        Some(_) => Err(Error::Failed(format!(
            "internal error: the packed weights exceed the error budget although they were measured before \
                ({}); nothing was written, please report this",
            certificate::largest(&linked.packed.reports)
        ))),
    }
}

/// Packs the weights, writes the artifact and, if asked for, runs it before it gets its name.
/// `progress` hears bytes of packed weights done, of the total. Where the packed weights break the
/// error budget, `lowered` is compiled again with `backend`.
///
/// # Errors
/// Bad values in the checkpoint; a budget that cannot be kept; the output cannot be written; the
/// artifact computes wrong results. Nothing is left behind.
pub fn finish(
    lowered: &mut Lowered,
    options: &CompileOptions,
    backend: &dyn Backend,
    out: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Finished, Error> {
    let mut phases = lowered.phases.clone();
    let linked = link_within_budget(lowered, options, backend, (out, progress), &mut phases)?;
    let lowered = &*lowered;
    let Linked { mut linker, code, runtime, shared, packed: Packed { reports, files } } = linked;
    let mut facts = Facts {
        lowered,
        options,
        code_bytes: code.bytes.len(),
        shared: &shared,
        reports: &reports,
        files,
        golden: Outcome::Absent("not run yet".into()),
    };
    let hashes = linker.end_weights()?;
    if options.measured.as_ref().and_then(|m| m.hashes).is_some_and(|measured| measured != hashes) {
        return Err(Error::Failed(
            "internal error: the artifact is not the one that was measured; nothing was written, please report this"
                .into(),
        ));
    }
    let seed = golden::seed(hashes);
    phases.time("write", || linker.seal(&data_segment(&facts, &code)))?;
    facts.golden = phases.time("run", || golden::examine(lowered, &shared, options, linker.temporary(), seed))?;
    let outside = bytes_beside(options, &shared);
    let (bytes, root) = phases.time("finish", || {
        let sealed = linker.seal(&data_segment(&facts, &code))?;
        if let Some(broken) = options.measured.as_ref().and_then(|m| m.too_large(sealed.0 + outside)) {
            return Err(Error::Failed(broken));
        }
        Ok(linker.finish().map(|()| sealed)?)
    })?;
    if options.place == WeightsPlace::Absent {
        let path = PathBuf::from(format!("{}.json", out.display()));
        Pending::write_file(&path, &Manifest::new(&facts).text())?;
    }
    let golden = facts.golden;
    let packed = reports.into_iter().next().unwrap_or_default();
    Ok(Finished { bytes, runtime, code_bytes: code.bytes.len(), packed, golden, check: None, root, phases })
}

/// An artifact without a name: nothing is left of it when it is dropped.
pub struct Unnamed {
    linker: Linker,
    /// Hashes of its code and of its weights.
    pub hashes: (Hash, Hash),
    /// Its bytes, with weights beside it.
    pub bytes: u64,
}

impl Unnamed {
    /// The path by which this process and its children open it.
    pub fn path(&self) -> &Path {
        self.linker.temporary()
    }
}

/// Packs the weights and writes an artifact that gets no name, in the folder of `near`. It is not run, and has no
/// golden vectors.
///
/// # Errors
/// As [`finish`].
pub fn unnamed(
    lowered: &mut Lowered,
    options: &CompileOptions,
    backend: &dyn Backend,
    near: &Path,
) -> Result<Unnamed, Error> {
    let mut phases = Phases::default();
    let linked = link_within_budget(lowered, options, backend, (near, &mut |_, _| {}), &mut phases)?;
    let Linked { mut linker, code, shared, packed: Packed { reports, files }, .. } = linked;
    let hashes = linker.end_weights()?;
    let golden = Outcome::Absent("a trial".into());
    let code_bytes = code.bytes.len();
    let facts = Facts { lowered, options, code_bytes, shared: &shared, reports: &reports, files, golden };
    let (own, _) = linker.seal(&data_segment(&facts, &code))?;
    Ok(Unnamed { linker, hashes, bytes: own + bytes_beside(options, &shared) })
}

/// Bytes of weights that are not in the artifact.
fn bytes_beside(options: &CompileOptions, shared: &SharedWeights) -> u64 {
    match options.place {
        WeightsPlace::Embed => 0,
        WeightsPlace::External | WeightsPlace::Absent => shared.bytes().iter().sum(),
    }
}

/// The tables and texts of an artifact.
fn data_segment(facts: &Facts<'_>, code: &artifact::CodeSegment) -> artifact::Data {
    let lowered = facts.lowered;
    let texts = Texts {
        manifest: Manifest::new(facts).text(),
        tokenizer: lowered.texts.tokenizer_json.clone().unwrap_or_default(),
        text_config: serde_json::to_vec(&lowered.texts.text_config).unwrap_or_default(),
        notices: llmcc_rt_image::NOTICES.as_bytes().to_vec(),
        recipe: recipe::text(&lowered.module, lowered.choices(facts.options), &facts.shared.lists, facts.reports),
    };
    let spans = facts.shared.spans();
    let versions = lowered.versions.iter().zip(&spans);
    let alternatives: Vec<_> = versions
        .map(|(v, (weights, weight_offsets))| artifact::Alternative {
            plan: &v.compiled.plan,
            target: v.target,
            objects: &v.objects,
            weight_offsets,
            weights: *weights,
        })
        .collect();
    artifact::data_segment(&alternatives, code, &texts)
}

/// The packed weights of all versions, a report per list.
struct Packed {
    reports: Vec<PackReport>,
    files: Vec<SourceFile>,
}

/// Packs the weights of all versions, list after list, while the checkpoint's files are hashed.
fn pack_all(
    lowered: &Lowered,
    options: &CompileOptions,
    shared: &SharedWeights,
    linker: &mut Linker,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Packed, Error> {
    let own;
    let source: &dyn WeightSource = match &lowered.origin {
        Origin::Checkpoint(checkpoint) => {
            own = Source::new(checkpoint, options);
            &own
        }
        Origin::Artifact(remade) => &*remade.weights,
    };
    let files = || match &lowered.origin {
        Origin::Checkpoint(checkpoint) => hash_sources(checkpoint),
        // (The artifact has their hashes.)
        Origin::Artifact(_) => Ok(vec![]),
    };
    let total = shared.bytes().iter().sum();
    std::thread::scope(|s| {
        let hashes = beside(s, files);
        let mut before = 0;
        let reports: Result<Vec<PackReport>, PackError> = {
            let mut sink = linker.weights(shared.offsets());
            let pack_list = |plan| {
                let mut report = |done| progress(before + done, total);
                let packed = llmcc_passes::pack::pack(plan, &lowered.module, source, &mut sink, &mut report)?;
                before += packed.bytes;
                Ok(packed)
            };
            shared.lists.iter().map(pack_list).collect()
        };
        let files = hashes.join();
        let reports = reports.map_err(|error| match error {
            PackError::Write(source) => linker.weights_failed(source).into(),
            other => Error::from(other),
        });
        Ok(Packed { reports: reports?, files: files? })
    })
}

/// Only says how large the weights are: neither they nor the checkpoint's tensors are read.
fn leave_out(shared: &SharedWeights, linker: &mut Linker) -> Packed {
    let bytes = shared.bytes();
    linker.leave_out(bytes.iter().sum());
    let reports = bytes.into_iter().map(|bytes| PackReport { bytes, ..PackReport::default() }).collect();
    Packed { reports, files: vec![] }
}
