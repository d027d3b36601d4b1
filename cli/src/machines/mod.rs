//! Machines by their data sheets, for predictions: each beside a figure that was published for it, and the bound that
//! the same rates give for the same configuration.

mod machine;
mod table;

pub use machine::{Cards, Decoder, Figure, Machine, Published, Rates};
pub use table::MEMBERS;

use llmcc_ir::target::{self, RowKind, TargetSpec};

/// A target's machine, by the line of its table.
fn of_target(t: &'static TargetSpec) -> Machine {
    let operations = |kind: RowKind| 2.0 * t.macs(kind) * t.cores as f64;
    let best = |kinds: &[RowKind]| kinds.iter().map(|kind| operations(*kind)).fold(0.0, f64::max);
    let wide = best(&[RowKind::F32, RowKind::Bf16, RowKind::F16]);
    Machine {
        name: t.name,
        about: t.about,
        memory: t.memory,
        states: t.memory,
        bytes: f64::INFINITY,
        wide,
        narrow: best(&[RowKind::Int8, RowKind::Fp8]).max(wide),
        watts: None,
        launch: t.launch,
        sheet: "the target's line",
        published: Published::NotFound("it is a target of this compiler: `llmcc bench` measures it"),
    }
}

/// The machine of this name: of the table, or a target's.
pub fn find(name: &str) -> Option<Machine> {
    let member = MEMBERS.iter().find(|m| m.name == name).copied();
    member.or_else(|| target::find(name).map(of_target))
}

/// Names of all machines.
pub fn names() -> impl Iterator<Item = &'static str> {
    MEMBERS.iter().map(|m| m.name).chain(target::all().map(|t| t.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_make_sense() {
        for (i, m) in MEMBERS.iter().enumerate() {
            assert!(MEMBERS[..i].iter().all(|o| o.name != m.name) && target::find(m.name).is_none(), "{}", m.name);
            let rates = [m.memory, m.states, m.bytes, m.wide, m.narrow, m.watts.unwrap_or(1.0)];
            assert!(rates.into_iter().all(|r| r > 0.0 && r.is_finite()) && m.launch >= 0.0, "{}", m.name);
            assert!(m.narrow >= m.wide && m.states >= m.memory && !m.sheet.is_empty(), "{}", m.name);
            assert_eq!(find(m.name), Some(*m));
        }
        for name in
            ["a100", "h100", "b200", "mi300x", "gaudi3", "tpu-v5p", "inferentia2", "groq-lpu", "flightllm", "neupims"]
        {
            assert!(find(name).is_some(), "{name}");
        }
        assert!(find("sm90:h100").is_some_and(|m| m.memory == 3.35e12) && find("abacus").is_none());
        assert!(find("x86-64-v4").is_some_and(|m| m.bytes.is_infinite() && m.narrow > m.wide));
        assert!(names().count() > MEMBERS.len());
    }

    /// Bounds at data-sheet rates are above what was measured, and within three times of it.
    #[test]
    fn bounds_are_above_published_figures() {
        let mut compared = 0;
        for m in MEMBERS {
            let Published::Of(figure) = m.published else { continue };
            let ratio = figure.bound(m) / figure.tokens_per_second;
            assert!((1.0..3.2).contains(&ratio), "{}: {} tokens/s, {ratio} times", m.name, figure.bound(m));
            assert!(!figure.source.is_empty());
            compared += 1;
        }
        assert!(compared >= 8);
    }

    /// By hand: 6.61 GB of weights and 0.26 MB of states for each of 384 tokens at 819 GB/s are 8.2 ms.
    #[test]
    fn a_bound_by_hand() {
        let Some(Machine { published: Published::Of(figure), .. }) = find("flightllm") else { panic!("a figure") };
        let machine = find("flightllm").unwrap();
        let step = (6.61e9 + 384.0 * 32.0 * 8192.0) / 0.8192e12;
        assert!((figure.bound(&machine) - 1.0 / step).abs() < 1e-6);
        let twice = Machine { memory: 2.0 * machine.memory, states: 2.0 * machine.states, ..machine };
        assert!((figure.bound(&twice) - 2.0 / step).abs() < 1e-6);
    }
}
