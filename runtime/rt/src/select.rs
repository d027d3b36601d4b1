//! Which version of the model runs, and where: a GPU's if there is a usable GPU, else the best one
//! for this processor; or the one that is asked for.

use crate::cuda::ffi::{Api, LoadError};
use crate::cuda::{Device, Facts, device::DEVICE_VARIABLE};
use crate::engine::{Engine, Options};
use crate::error::{Error, Result, Status};
use crate::image::{Image, cpu::check_isa};
use llmcc_abi::isa;
use llmcc_ukernels::Level;

/// Environment variable that asks for a kind of machine, `cpu` or `gpu`, or for the version for a
/// level of processors: `x86-64-v3`, say.
pub const MACHINE_VARIABLE: &str = "LLMCC_DEVICE";

/// The user's choice of version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Only this kind of machine.
    pub machine: Option<Machine>,
    /// Number of the GPU.
    pub gpu: i32,
}

/// Kinds of machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// This processor.
    Cpu,
    /// A GPU.
    Gpu,
    /// This processor as one of a lower level (`llmcc_abi::isa`): that level's version of the
    /// model, with its microkernels.
    Level(u32),
}

/// GPU targets of the compiler: compute capability times ten, examples of machines.
const GPUS: [(u32, &str); 5] =
    [(80, "A100"), (86, "RTX 30, A10, A40"), (89, "RTX 40, L4, L40"), (90, "H100, H200"), (100, "B200")];

impl Wish {
    /// From the environment.
    ///
    /// # Errors
    /// A variable has a value without a meaning.
    pub fn from_environment() -> Result<Wish> {
        let read = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let machine = match read(MACHINE_VARIABLE).as_deref() {
            None => None,
            Some("cpu") => Some(Machine::Cpu),
            Some("gpu") => Some(Machine::Gpu),
            Some(other) => match isa::CPU_NAMES.iter().find(|(_, name)| *name == other) {
                Some((level, _)) => Some(Machine::Level(*level)),
                None => {
                    let levels = isa::CPU_NAMES.map(|(_, name)| name).join(", ");
                    return Err(Error::invalid(format!(
                        "{MACHINE_VARIABLE} is `{other}` in the environment; use cpu, gpu or a level of processors: {levels}"
                    )));
                }
            },
        };
        let gpu = match read(DEVICE_VARIABLE) {
            None => 0,
            Some(value) => value.parse().ok().filter(|n| *n >= 0).ok_or_else(|| {
                Error::invalid(format!(
                    "{DEVICE_VARIABLE} is `{value}` in the environment; use the number of a GPU, counted from 0"
                ))
            })?,
        };
        Ok(Wish { machine, gpu })
    }
}

/// Opens the version among `images` that suits this machine best.
///
/// # Errors
/// None does, and why; or the best one cannot be opened.
pub fn open(images: Vec<Image>, options: &Options) -> Result<Engine> {
    open_with(images, options, Wish::from_environment()?, Api::load)
}

/// As [`open`], with a wish and a way to find the CUDA driver, which is only looked for when there
/// is a version for GPUs.
///
/// # Errors
/// As [`open`].
pub fn open_with(
    images: Vec<Image>,
    options: &Options,
    wish: Wish,
    driver: impl FnOnce() -> std::result::Result<Api, LoadError>,
) -> Result<Engine> {
    let (mut gpus, mut cpus): (Vec<Image>, Vec<Image>) = images.into_iter().partition(|i| i.gpu_level().is_some());
    // Best first.
    gpus.sort_by_key(|i| std::cmp::Reverse(i.gpu_level()));
    cpus.sort_by_key(|i| std::cmp::Reverse(i.desc().isa));
    let refused = |message: String| Error::new(Status::Cpu, message);
    match wish.machine {
        Some(Machine::Cpu) if cpus.is_empty() => {
            return Err(refused(format!(
                "{MACHINE_VARIABLE}=cpu, but this artifact has no version for processors; compile with `--target native`"
            )));
        }
        Some(Machine::Gpu) if gpus.is_empty() => {
            return Err(refused(format!(
                "{MACHINE_VARIABLE}=gpu, but this artifact has no version for GPUs; compile with `--target sm90`, say"
            )));
        }
        Some(Machine::Cpu) => gpus.clear(),
        Some(Machine::Level(level)) => return open_level(cpus, options, level),
        Some(Machine::Gpu) => cpus.clear(),
        None => {}
    }
    if gpus.is_empty() {
        return open_cpu(cpus, options);
    }
    let levels: Vec<u32> = gpus.iter().filter_map(Image::gpu_level).collect();
    match usable(driver, wish.gpu, &levels) {
        Ok((api, facts, index)) => Engine::on_gpu(gpus.swap_remove(index), options, &Device::open(api, facts)?),
        Err(reason) if cpus.is_empty() => Err(refused(format!("this artifact is for {}; {reason}", names(&levels)))),
        // A fat artifact is made for machines without a GPU, too.
        Err(_) => open_cpu(cpus, options),
    }
}

fn open_cpu(cpus: Vec<Image>, options: &Options) -> Result<Engine> {
    let mut last = Err(Error::artifact("the artifact has no model; compile it again"));
    for image in cpus {
        last = check_isa(image.desc().isa);
        if last.is_ok() {
            return with_microkernels(image, options, llmcc_ukernels::detect());
        }
    }
    // The reason for the least demanding version.
    Err(last.err().unwrap_or_else(|| Error::artifact("the artifact has no model; compile it again")))
}

/// Opens the version for `level`, with microkernels that all processors of that level have, so that
/// results are the same on each.
fn open_level(cpus: Vec<Image>, options: &Options, level: u32) -> Result<Engine> {
    let name = |level: u32| isa::CPU_NAMES.iter().find(|(l, _)| *l == level).map_or("?", |(_, name)| *name);
    let levels = cpus.iter().map(|i| name(i.desc().isa)).collect::<Vec<_>>().join(", ");
    let Some(image) = cpus.into_iter().find(|i| i.desc().isa == level) else {
        let has = if levels.is_empty() { "and none for other processors".into() } else { format!("only for {levels}") };
        let message =
            format!("{MACHINE_VARIABLE}={}, but this artifact has no version for that level, {has}", name(level));
        return Err(Error::new(Status::Cpu, message));
    };
    check_isa(level)?;
    let most = match level {
        isa::X86_64 => Level::Sse2,
        isa::X86_64_V3 => Level::Avx2,
        isa::AARCH64 => Level::Dotprod,
        _ => Level::Amx,
    };
    with_microkernels(image, options, llmcc_ukernels::detect().min(most))
}

fn with_microkernels(image: Image, options: &Options, level: Level) -> Result<Engine> {
    let (table, name) = match options.portable {
        true => (llmcc_ukernels::portable_table(level), "portable"),
        false => (llmcc_ukernels::table(level), level.name()),
    };
    Engine::new(image, options, table).map(|engine| engine.with_microkernels(name))
}

/// GPU number `ordinal` and the first of the versions that it runs; else why there is none, as the
/// end of a sentence.
fn usable(
    driver: impl FnOnce() -> std::result::Result<Api, LoadError>,
    ordinal: i32,
    levels: &[u32],
) -> std::result::Result<(Api, Facts, usize), String> {
    let advice = "run it on a machine with such a GPU and its driver, or compile for this one with `--target native` (or both: `--target sm90,x86-64-v3`)";
    let api = driver().map_err(|e| match e {
        LoadError::NoLibrary(reason) => format!("this machine has no NVIDIA driver ({reason}): {advice}"),
        LoadError::NoFunction(name) => format!("the NVIDIA driver of this machine lacks {name}: update it"),
    })?;
    let facts = Facts::of(&api, ordinal).map_err(|reason| format!("{reason}: {advice}"))?;
    if let Some(index) = levels.iter().position(|level| runs(*level, facts.capability)) {
        return Ok((api, facts, index));
    }
    let (capability, name) = (facts.capability, &facts.name);
    let target = match GPUS.iter().rev().find(|(level, _)| runs(*level, capability)) {
        Some((level, _)) => {
            format!("compile with `--target sm{level}`, or for several machines: `--target sm{},sm{level}`", levels[0])
        }
        None => "it is too old for llmcc".into(),
    };
    Err(format!(
        "GPU {ordinal} of this machine is {name} with compute capability {}.{}: {target}",
        capability / 10,
        capability % 10
    ))
}

/// Whether a GPU of `capability` runs code for `level`. Code for 9.0 uses instructions that no
/// other has (`sm_90a`); other code runs on all later GPUs.
fn runs(level: u32, capability: u32) -> bool {
    if level == 90 { capability == level } else { capability >= level }
}

fn names(levels: &[u32]) -> String {
    let name = |level: &u32| match GPUS.iter().find(|(l, _)| l == level) {
        Some((_, examples)) => format!("sm{level} ({examples})"),
        None => format!("sm{level}"),
    };
    levels.iter().map(name).collect::<Vec<_>>().join(" and ")
}
