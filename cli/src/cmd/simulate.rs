//! `llmcc simulate`: how an artifact would serve a workload, on its target, here, or on another machine.

use crate::Error;
use crate::args::SimulateArgs;
use crate::loaded::Model;
use crate::machines::{self, Cards, MEMBERS, Machine, Published};
use crate::simulate::calibration::Calibration;
use crate::simulate::{Choices, On, Subject};
use crate::units::bytes;
use crate::workload::Workload;
use crate::workload::figures::Figures;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// Predicts and prints.
///
/// # Errors
/// Not an artifact; a trace that cannot be read; a machine that is not known; a workload that does not fit.
pub fn run(args: &SimulateArgs) -> Result<(), Error> {
    if args.list {
        return super::print(&if args.json { format!("{}\n", listed_json()) } else { listed() });
    }
    let Some(artifact) = &args.artifact else { return Err(Error::Usage("give an artifact, or --list".into())) };
    let machines: Vec<Machine> = args.machines.iter().map(|name| machine(name)).collect::<Result<_, _>>()?;
    let lengths = args.requests.lengths();
    let workloads: Vec<Workload> = args.workload.iter().map(|w| w.workload(&lengths)).collect::<Result<_, _>>()?;
    args.engine.check_key(artifact)?;
    let subject = Subject::open(artifact, args.target.as_deref())?;
    let (calibration, cache_tokens) = match args.calibrate {
        false => (None, args.engine.options().max_tokens),
        true => {
            let model = args.engine.open(artifact)?;
            (Some(calibrate(&model, &subject)?), model.info().cache_tokens as u64)
        }
    };
    let choices = Choices {
        running: args.requests.running,
        cache_tokens: usize::try_from(cache_tokens).ok().filter(|tokens| *tokens > 0),
        targets: args.requests.targets(),
    };
    let mut on = vec![(format!("predicted for {}", subject.version.target), On::Target)];
    on.extend(calibration.as_ref().map(|calibration| ("calibrated on this machine".into(), On::Here(calibration))));
    on.extend(machines.iter().map(|m| (format!("{}, by its data sheet", m.about), On::Machine(m))));
    let mut all = vec![];
    for workload in &workloads {
        for (title, on) in &on {
            all.push((title.clone(), predict(&subject, workload, *on, &choices)?));
        }
    }
    super::print(&match args.json {
        true => format!("{}\n", document(artifact, &subject, calibration.as_ref(), &all)),
        false => text(calibration.as_ref(), &all),
    })
}

fn machine(name: &str) -> Result<Machine, Error> {
    machines::find(name).ok_or_else(|| {
        let known: Vec<&str> = machines::names().collect();
        Error::Usage(format!("--machines: there is no machine {name}; known are {}", known.join(", ")))
    })
}

/// Runs some steps, if the version that is simulated is the one that runs here.
fn calibrate(model: &Model, subject: &Subject) -> Result<Calibration, Error> {
    let runs = subject.version.spec().map(llmcc_codegen::artifact::isa);
    if runs != Some(model.info().isa) {
        return Err(Error::Usage(format!(
            "--calibrate: this machine does not run the version for {}; leave --target out",
            subject.version.target
        )));
    }
    Calibration::measure(model, &subject.costs)
}

/// The figures of a workload; of a machine that has no room for the model why not.
fn predict(
    subject: &Subject,
    workload: &Workload,
    on: On,
    choices: &Choices,
) -> Result<Result<Figures, String>, Error> {
    match (subject.predict(workload, on, choices), on) {
        (Err(message), On::Target | On::Here(_)) => Err(Error::Usage(format!("{}: {message}", workload.name))),
        (figures, _) => Ok(figures),
    }
}

fn text(calibration: Option<&Calibration>, all: &[(String, Result<Figures, String>)]) -> String {
    let mut s = calibration.map_or(String::new(), |calibration| calibration.text() + "\n");
    for (title, figures) in all {
        let _ = writeln!(s, "{title}");
        match figures {
            Ok(figures) => s += &figures.text(),
            Err(message) => {
                let _ = writeln!(s, "        no room     {message}");
            }
        }
    }
    s
}

fn document(
    artifact: &Path,
    subject: &Subject,
    calibration: Option<&Calibration>,
    all: &[(String, Result<Figures, String>)],
) -> Value {
    let one = |(title, figures): &(String, Result<Figures, String>)| match figures {
        Ok(figures) => json!({ "on": title, "figures": figures.json(), "no_room": null }),
        Err(message) => json!({ "on": title, "figures": null, "no_room": message }),
    };
    json!({
        "artifact": artifact.display().to_string(),
        "target": subject.version.target,
        "calibration": calibration.map(Calibration::json),
        "simulated": all.iter().map(one).collect::<Vec<_>>(),
    })
}

/// The table of machines.
fn listed() -> String {
    let mut s =
        String::from("rates of data sheets; bounds by them alone, beside published figures in generated tokens/s\n");
    for m in MEMBERS {
        let watts = m.watts.map_or(String::new(), |watts| format!(", {watts:.0} W"));
        let _ = writeln!(
            s,
            "\n{:<12} {}: {:.2} TB/s, {}, {:.0} and {:.0} TOPS (16 and 8 bits){watts}\n  rates      {}",
            m.name,
            m.about,
            m.memory * 1e-12,
            bytes(m.bytes),
            m.wide * 1e-12,
            m.narrow * 1e-12,
            m.sheet
        );
        if m.states > m.memory {
            let _ = writeln!(s, "  attention  {:.1} TB/s of keys and values", m.states * 1e-12);
        }
        match m.published {
            Published::NotFound(why) => {
                let _ = writeln!(s, "  published  not found: {why}");
            }
            Published::Of(f) => {
                let bound = f.bound(m);
                let (batch, rate) = (f.batch.map_or("full".into(), |b| format!("{b:.0}")), f.tokens_per_second);
                let cards = match f.cards {
                    Cards::Together(cards) => format!("{cards:.0} together"),
                    Cards::InTurn => "in turn".into(),
                };
                let _ = writeln!(
                    s,
                    "  published  {rate:.1}, bound {bound:.1} ({:.0} % of it): {}, {cards}, batch {batch}, \
                     prompt {:.0}, text {:.0}\n  source     {}\n  assumed    {}",
                    100.0 * rate / bound,
                    f.decoder.name,
                    f.prompt,
                    f.output,
                    f.source,
                    f.note
                );
            }
        }
    }
    s
}

fn listed_json() -> Value {
    let one = |m: &Machine| {
        let published = match m.published {
            Published::NotFound(why) => json!({ "not_found": why }),
            Published::Of(f) => json!({
                "model": f.decoder.name, "batch": f.batch, "prompt": f.prompt, "output": f.output,
                "tokens_per_second": f.tokens_per_second, "bound": f.bound(m), "source": f.source, "assumed": f.note,
            }),
        };
        json!({
            "machine": m.name, "about": m.about, "memory_bytes_per_second": m.memory,
            "state_bytes_per_second": m.states, "memory_bytes": m.bytes, "operations_per_second_16_bits": m.wide,
            "operations_per_second_8_bits": m.narrow, "watts": m.watts, "launch_seconds": m.launch, "sheet": m.sheet,
            "published": published,
        })
    };
    json!({ "machines": MEMBERS.iter().map(one).collect::<Vec<_>>() })
}
